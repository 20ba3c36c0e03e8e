// Attention of a run of query rows over all of their keys, with a running maximum and sum (online softmax; Milakov and
// Gimelshein 2018, in the blocked form of FlashAttention, arXiv 2205.14135 and 2307.08691).
//
// A task's rows share each packed block of keys and values while it sits in the second-level cache. Within a block the
// work goes tile by tile: kRowTile rows of scores fit the first-level cache from the first product to the second.
// Which keys a row sees is always one contiguous range (causal and window masks both are), so a tile computes only the
// panels that at least one of its rows needs, and the mask is two fills instead of a comparison for each element.
//
// Left out: dropout (the driver refuses it).
#pragma once

#include "pack.h"

namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

constexpr int64_t kScoreUnits = 128;
constexpr float kOnes[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static_assert(Vector::kRowTile <= 12, "kOnes holds one factor for each row of a tile");

FA_INLINE float infinity() { return __builtin_inff(); }

FA_INLINE KeyRange keys_of_position(int64_t position, int64_t q_len, int64_t k_len, const Mask& mask) {
  const int64_t diagonal = position + k_len - q_len;
  KeyRange range{0, k_len};
  if (mask.window_left >= 0) range.begin = larger(0, diagonal - mask.window_left);
  if (mask.window_right >= 0) range.end = smaller(k_len, diagonal + mask.window_right + 1);
  range.begin = smaller(range.begin, k_len);
  range.end = larger(range.end, range.begin);
  return range;
}

// Rows of running maxima and totals a tile occupies: its rows, rounded up to whole vectors.
constexpr int64_t kStateRows = (Vector::kRowTile + Vector::kLanes - 1) / Vector::kLanes * Vector::kLanes;

FA_INLINE int64_t state_index(int64_t row) { return row / Vector::kRowTile * kStateRows + row % Vector::kRowTile; }

// Where a task's intermediate values lie inside its scratch memory.
template <class Compute>
struct Scratch {
  typename Compute::Unit* q;  // [rows][kRowStride]
  float* sums;                // [rows][columns], the unnormalised output
  float* scores;              // [kRowTile][kScoreStride]
  typename Compute::Unit* probabilities;
  float* maximum;  // [state_index(rows)], in base-2 logits
  float* total;    // [rows][kLanes]; the total of a row is the sum of its lanes

  static constexpr int64_t kScoreStride = kKeyBlock + 32;

  static int64_t bytes(int64_t rows, int64_t head_dim) { return layout(nullptr, rows, head_dim, nullptr); }

  static int64_t layout(char* base, int64_t rows, int64_t head_dim, Scratch* scratch) {
    const int64_t padded = round_up(rows, Vector::kRowTail);
    const int64_t unit_bytes = static_cast<int64_t>(sizeof(typename Compute::Unit));
    const int64_t parts[] = {
        padded * Compute::kRowStride * unit_bytes,
        padded * Layout<Compute>::columns(head_dim) * 4,
        Vector::kRowTile * kScoreStride * 4,
        Vector::kRowTile * Compute::kRowStride * unit_bytes,
        state_index(padded + Vector::kRowTile) * 4,
        padded * Vector::kLanes * 4,
    };
    int64_t offsets[6];
    int64_t offset = 0;
    for (int i = 0; i < 6; ++i) {
      offsets[i] = offset;
      offset += round_up(parts[i], 64);
    }
    if (scratch != nullptr) {
      scratch->q = reinterpret_cast<typename Compute::Unit*>(base + offsets[0]);
      scratch->sums = reinterpret_cast<float*>(base + offsets[1]);
      scratch->scores = reinterpret_cast<float*>(base + offsets[2]);
      scratch->probabilities = reinterpret_cast<typename Compute::Unit*>(base + offsets[3]);
      scratch->maximum = reinterpret_cast<float*>(base + offsets[4]);
      scratch->total = reinterpret_cast<float*>(base + offsets[5]);
    }
    return offset;
  }
};

// How raw scores become base-2 logits: by one multiplication, or through transform_scores and then as they are. A negative
// scale would turn the maximum into a minimum, and 0 would turn the -inf of masked scores into NaN; negating or zeroing the
// queries instead is exact.
struct ScoreScale {
  bool negate;
  bool zero;
  bool transformed;
  float magnitude;
  float row;
};

FA_INLINE ScoreScale score_scale(const Score& score) {
  ScoreScale scale;
  scale.negate = score.softmax_scale < 0;
  scale.zero = score.softmax_scale == 0;
  scale.magnitude = scale.zero ? 1.0f : scale.negate ? -score.softmax_scale : score.softmax_scale;
  scale.transformed = score.softcap > 0 || score.slopes != nullptr;
  scale.row = scale.transformed ? 1.0f : scale.magnitude * kLog2E;
  return scale;
}

template <class Compute, class T>
struct QueryWriter {
  static FA_INLINE void run(float* out, const T* row, int64_t head_dim, bool negate) {
    const Vector::Register sign = Vector::set1(negate ? -1.0f : 1.0f);
    int64_t d = 0;
    for (; d + Vector::kLanes <= head_dim; d += Vector::kLanes) Vector::store(out + d, Vector::mul(Vector::load(row + d), sign));
    for (; d < head_dim; ++d) out[d] = negate ? -to_float(row[d]) : to_float(row[d]);
  }
};

#ifdef FA_BFLOAT16_PAIRS
template <class T>
struct QueryWriter<PairCompute, T> {
  static FA_INLINE void run(uint32_t* out, const T* row, int64_t head_dim, bool negate) {
    const uint16_t sign = negate ? 0x8000u : 0u;
    uint16_t* halves = reinterpret_cast<uint16_t*>(out);
    int64_t d = 0;
    for (; d + 32 <= head_dim; d += 32) {
      _mm512_storeu_si512(halves + d, _mm512_xor_si512(_mm512_loadu_si512(row + d), _mm512_set1_epi16(static_cast<int16_t>(sign))));
    }
    for (; d < head_dim; ++d) halves[d] = row[d].bits ^ sign;
    if (head_dim % 2 != 0) halves[head_dim] = 0;
  }
};
#endif

template <class Compute, class T>
FA_INLINE void load_query(typename Compute::Unit* out, const T* row, int64_t head_dim, const ScoreScale& scale) {
  if (scale.zero) {
    for (int64_t unit = 0; unit < Layout<Compute>::key_units(head_dim); ++unit) out[unit] = 0;
  } else {
    QueryWriter<Compute, T>::run(out, row, head_dim, scale.negate);
  }
}

// The part of a range of keys that falls into the block starting at `block_key`, relative to it; {0, 0} if none does.
FA_INLINE KeyRange keys_in_block(const KeyRange& range, int64_t block_key) {
  const int64_t low = larger(0, smaller(kKeyBlock, range.begin - block_key));
  const int64_t high = larger(0, smaller(kKeyBlock, range.end - block_key));
  return low < high ? KeyRange{low, high} : KeyRange{0, 0};
}

// Turns raw scores into base-2 logits where a softcap or a bias makes that more than a multiplication.
FA_INLINE void transform_scores(float* scores, int64_t begin, int64_t end, const Score& score, float scale, float slope,
                                int64_t first_key, int64_t diagonal) {
  const Vector::Register lanes = Vector::iota();
  const Vector::Register cap = Vector::set1(score.softcap * kLog2E);
  const Vector::Register inner = Vector::set1(score.softcap > 0 ? scale / score.softcap : scale * kLog2E);
  const Vector::Register bias = Vector::set1(-slope * kLog2E);
  for (int64_t key = begin; key < end; key += Vector::kLanes) {
    Vector::Register x = Vector::mul(Vector::load(scores + key), inner);
    if (score.softcap > 0) x = Vector::mul(tanh_vector(x), cap);
    if (slope != 0) {
      const Vector::Register distance =
          Vector::abs(Vector::add(lanes, Vector::set1(static_cast<float>(first_key + key - diagonal))));
      x = Vector::fma(bias, distance, x);
    }
    Vector::store(scores + key, x);
  }
}

FA_INLINE void store_probabilities(FloatCompute, float* row, int64_t key, Vector::Register low, Vector::Register high) {
  Vector::store(row + key, low);
  Vector::store(row + key + Vector::kLanes, high);
}

#ifdef FA_BFLOAT16_PAIRS
FA_INLINE void store_probabilities(PairCompute, uint32_t* row, int64_t key, __m512 low, __m512 high) {
  _mm512_storeu_si512(row + key / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
#endif

// Reduces each of kLanes vectors to one lane of the result, without a chain of shuffles for each row.
template <class Combine>
FA_INLINE Vector::Register reduce_rows(const float (*partial)[Vector::kLanes], const Combine& combine) {
  Vector::Register rows[Vector::kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < Vector::kLanes; ++i) rows[i] = Vector::load(partial[i]);
  Vector::transpose(rows);
#pragma GCC unroll 16
  for (int i = 1; i < Vector::kLanes; ++i) rows[0] = combine(rows[0], rows[i]);
  return rows[0];
}

// Exponentiates a tile of scores in [begin, end) (both multiples of kPanel) against the rows' running maxima, updates
// maxima and totals, and leaves in `shrink` the factors by which the rows' earlier sums must shrink.
template <class Compute, int kDegree>
FA_INLINE void softmax_tile(int64_t rows, const float* scores, int64_t score_stride, typename Compute::Unit* probabilities,
                            int64_t begin, int64_t end, float scale, float* maximum, float* total, float* shrink) {
  alignas(64) float partial[kStateRows][Vector::kLanes] = {};
  alignas(64) float offset[kStateRows];
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = scores + r * score_stride;
    Vector::Register high0 = Vector::load(row + begin);
    Vector::Register high1 = Vector::load(row + begin + Vector::kLanes);
    for (int64_t key = begin + kPanel; key < end; key += kPanel) {
      high0 = Vector::max(high0, Vector::load(row + key));
      high1 = Vector::max(high1, Vector::load(row + key + Vector::kLanes));
    }
    Vector::store(partial[r], Vector::max(high0, high1));
  }
  const Vector::Register factor = Vector::set1(scale);
  for (int64_t r = 0; r < kStateRows; r += Vector::kLanes) {
    const Vector::Register block = reduce_rows(partial + r, [](auto a, auto b) { return Vector::max(a, b); });
    const Vector::Register before = Vector::load(maximum + r);
    const Vector::Register now = Vector::max(before, Vector::mul(block, factor));
    // With no finite logit so far the offset is the lowest float and not -inf, so that -inf minus it stays -inf.
    const Vector::Register base = Vector::max(Vector::set1(-3.4028234e38f), now);
    Vector::store(maximum + r, now);
    Vector::store(offset + r, base);
    Vector::store(shrink + r, exp2_vector<6>(Vector::sub(before, base)));
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = scores + r * score_stride;
    typename Compute::Unit* out = probabilities + r * Compute::kRowStride;
    const Vector::Register shift = Vector::set1(-offset[r]);
    Vector::Register sum0 = Vector::zero();
    Vector::Register sum1 = Vector::zero();
    for (int64_t key = begin; key < end; key += kPanel) {
      const Vector::Register low = exp2_vector<kDegree>(Vector::fma(Vector::load(row + key), factor, shift));
      const Vector::Register high =
          exp2_vector<kDegree>(Vector::fma(Vector::load(row + key + Vector::kLanes), factor, shift));
      sum0 = Vector::add(sum0, low);
      sum1 = Vector::add(sum1, high);
      store_probabilities(Compute{}, out, key, low, high);
    }
    float* lanes = total + r * Vector::kLanes;
    Vector::store(lanes, Vector::fma(Vector::load(lanes), Vector::set1(shrink[r]), Vector::add(sum0, sum1)));
  }
}

// Applies transformation and mask to one row of scores in [begin, end). A row that sees nothing has the range {0, 0}.
FA_INLINE void mask_scores(float* scores, int64_t begin, int64_t end, const KeyRange& range, const Score& score,
                           const ScoreScale& scale, int64_t head, int64_t block_key, int64_t diagonal) {
  if (scale.transformed) {
    const float slope = score.slopes == nullptr ? 0.0f : score.slopes[head];
    transform_scores(scores, begin, end, score, scale.magnitude, slope, block_key, diagonal);
  }
  for (int64_t key = begin; key < range.begin; ++key) scores[key] = -infinity();
  for (int64_t key = larger(begin, range.end); key < end; ++key) scores[key] = -infinity();
}

FA_INLINE float exp2_one(float x) {
  float lanes[Vector::kLanes];
  Vector::store(lanes, exp2_vector<6>(Vector::set1(x)));
  return lanes[0];
}

FA_INLINE float sum_of_lanes(const float* lanes) {
  float sum = 0;
  for (int i = 0; i < Vector::kLanes; ++i) sum += lanes[i];
  return sum;
}

// Normalises one row of sums into `out` and returns its natural log-sum-exp. A row without keys is zero by definition; one
// whose logits are all -inf is 0/0, as in a plain softmax.
template <class T>
FA_INLINE float store_row(T* out, const float* sums, int64_t head_dim, float maximum, float total, bool empty) {
  const float inverse = empty ? 0.0f : 1.0f / total;
  const Vector::Register factor = Vector::set1(inverse);
  int64_t d = 0;
  for (; d + Vector::kLanes <= head_dim; d += Vector::kLanes) {
    Vector::store(out + d, Vector::mul(Vector::load(sums + d), factor));
  }
  for (; d < head_dim; ++d) from_float(out + d, sums[d] * inverse);
  if (total > 0) return maximum * kLn2 + log_scalar(total);
  return total != total ? total : -infinity();
}

constexpr int64_t kPositionsAhead = 8;

FA_INLINE bool sees_block(const ForwardTask& task, int64_t row, int64_t block_key) {
  const KeyRange range = keys_of_position(row / task.group, task.q_len, task.k_len, task.mask);
  return range.begin <= block_key && block_key + kKeyBlock <= range.end;
}

template <class Compute, class T>
void forward_rows(const ForwardTask* task_pointer) {
  FA_TIMED_TASK();
  const ForwardTask& task = *task_pointer;
  constexpr int kDegree = Compute::kDepth == 2 ? 4 : 6;
  const int64_t rows = task.row_end - task.row_begin;
  const int64_t padded_rows = round_up(rows, Vector::kRowTail);
  const int64_t key_units = Layout<Compute>::key_units(task.head_dim);
  const int64_t columns = Layout<Compute>::columns(task.head_dim);
  Scratch<Compute> scratch;
  Scratch<Compute>::layout(static_cast<char*>(task.scratch), rows, task.head_dim, &scratch);

  const ScoreScale scale = score_scale(task.score);

  for (int64_t i = 0; i < state_index(padded_rows + Vector::kRowTile); ++i) scratch.maximum[i] = -infinity();
  for (int64_t i = 0; i < padded_rows * Vector::kLanes; ++i) scratch.total[i] = 0;
  int64_t first_key = task.k_len;
  int64_t last_key = 0;
  for (int64_t r = 0; r < padded_rows; ++r) {
    typename Compute::Unit* q_row = scratch.q + r * Compute::kRowStride;
    const int64_t position = (task.row_begin + r) / task.group;
    const int64_t head = (task.row_begin + r) % task.group;
    if (r >= rows) {
      for (int64_t unit = 0; unit < key_units; ++unit) q_row[unit] = 0;
      continue;
    }
    const T* q = static_cast<const T*>(task.q) + position * task.q_row_stride + head * task.q_head_stride;
    if (position + kPositionsAhead < task.q_len) {
      ask_for_row(q + kPositionsAhead * task.q_row_stride, task.head_dim * static_cast<int64_t>(sizeof(T)));
    }
    load_query<Compute>(q_row, q, task.head_dim, scale);
    if (task.score.sinks != nullptr) {
      const float sink = task.score.sinks[head] * kLog2E;
      scratch.maximum[state_index(r)] = sink;
      scratch.total[r * Vector::kLanes] = sink == -infinity() ? 0.0f : 1.0f;
    }
    const KeyRange range = keys_of_position(position, task.q_len, task.k_len, task.mask);
    if (range.begin < range.end) {
      first_key = smaller(first_key, range.begin);
      last_key = larger(last_key, range.end);
    }
  }
  for (int64_t i = 0; i < padded_rows * columns; ++i) scratch.sums[i] = 0;

  const int64_t k_block_bytes = Layout<Compute>::k_block_bytes(task.head_dim);
  const int64_t v_block_bytes = Layout<Compute>::v_block_bytes(task.head_dim);
  for (int64_t block = first_key / kKeyBlock; block * kKeyBlock < last_key; ++block) {
    const int64_t block_key = block * kKeyBlock;
    const int64_t index = block - task.first_key_block;
    const auto* k_panels = reinterpret_cast<const typename Compute::Unit*>(
        static_cast<const char*>(task.k_packed) + index * k_block_bytes);
    const auto* v_panels = reinterpret_cast<const typename Compute::Unit*>(
        static_cast<const char*>(task.v_packed) + index * v_block_bytes);
    for (int64_t tile = 0; tile < padded_rows;) {
      const int64_t tile_rows = smaller(Vector::kRowTile, padded_rows - tile);
      const int64_t real_rows = smaller(tile_rows, rows - tile);
      KeyRange ranges[Vector::kRowTile];
      // Ranges move one way only, so the first and the last row tell whether all see the whole block.
      const bool whole = sees_block(task, task.row_begin + tile, block_key) &&
                         sees_block(task, task.row_begin + tile + real_rows - 1, block_key);
      int64_t begin = whole ? 0 : kKeyBlock;
      int64_t end = whole ? kKeyBlock : 0;
      for (int64_t r = 0; !whole && r < tile_rows; ++r) {
        ranges[r] = KeyRange{0, 0};
        if (r >= real_rows) continue;
        const int64_t position = (task.row_begin + tile + r) / task.group;
        ranges[r] = keys_in_block(keys_of_position(position, task.q_len, task.k_len, task.mask), block_key);
        if (ranges[r].begin >= ranges[r].end) continue;
        begin = smaller(begin, ranges[r].begin);
        end = larger(end, ranges[r].end);
      }
      if (begin < end) {
        begin = begin / kPanel * kPanel;
        end = round_up(end, kPanel);
        // Long head dimensions are summed in pieces, which halves the rounding error of the scores.
        for (int64_t unit = 0; unit < key_units; unit += kScoreUnits) {
          FA_TIMED(kScoreProducts);
          multiply_rows<Compute>(tile_rows, scratch.q + tile * Compute::kRowStride + unit, k_panels + begin * key_units,
                                 key_units, unit, smaller(kScoreUnits, key_units - unit), end - begin,
                                 scratch.scores + begin, Scratch<Compute>::kScoreStride, unit == 0 ? nullptr : kOnes);
        }
        for (int64_t r = 0; (!whole || scale.transformed) && r < real_rows; ++r) {
          const int64_t row = task.row_begin + tile + r;
          const KeyRange range = whole ? KeyRange{begin, end} : ranges[r];
          mask_scores(scratch.scores + r * Scratch<Compute>::kScoreStride, begin, end, range, task.score, scale,
                      row % task.group, block_key, row / task.group + task.k_len - task.q_len);
        }
        alignas(64) float shrink[kStateRows];
        {
          FA_TIMED(kExponentials);
          softmax_tile<Compute, kDegree>(tile_rows, scratch.scores, Scratch<Compute>::kScoreStride, scratch.probabilities,
                                         begin, end, scale.row, scratch.maximum + state_index(tile),
                                         scratch.total + tile * Vector::kLanes, shrink);
        }
        FA_TIMED(kValueProducts);
        multiply_rows<Compute>(tile_rows, scratch.probabilities + begin / Compute::kDepth, v_panels,
                               Layout<Compute>::kValueUnits, begin / Compute::kDepth, (end - begin) / Compute::kDepth, columns,
                               scratch.sums + tile * columns, columns, shrink);
      }
      tile += tile_rows;
    }
  }

  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = (task.row_begin + r) / task.group;
    const int64_t head = (task.row_begin + r) % task.group;
    const KeyRange range = keys_of_position(position, task.q_len, task.k_len, task.mask);
    T* out = static_cast<T*>(task.out) + position * task.out_row_stride + head * task.out_head_stride;
    const float lse = store_row(out, scratch.sums + r * columns, task.head_dim, scratch.maximum[state_index(r)],
                                sum_of_lanes(scratch.total + r * Vector::kLanes), range.begin >= range.end);
    task.lse[position * task.lse_row_stride + head * task.lse_head_stride] = lse;
  }
}

}  // namespace
