// Gradients of attention (arXiv 2307.08691, algorithm 2), one key/value head at a time.
//
// Scores are computed transposed: rows are keys, columns are query rows, so that probabilities and their gradients come out
// as left operands of the products that sum over queries (the gradients of v and k). The gradient of q, which sums over
// keys, is kept transposed as well; its right operand is the same tile of score gradients, stored a second time in the
// layout of values. So no tile is ever transposed; only k is, once for each block, and the gradient of q, once at the end.
//
//     S = q k^T, P = exp(S * scale - lse), dP = dO v^T, dS = P * (dP - delta), delta = sum(dO * O) - dLSE
//     dV = P^T dO, dK = scale * dS^T q, dQ = scale * dS k
//
// A query row is (position, head of the group), the head running faster; the rows that see a key are one contiguous range.
#pragma once

#include "decode_block.h"

namespace {

// Query rows, and keys, of a block: what is at hand for a pair of blocks fits the second-level cache (about 0.7 MB at a
// head dimension of 128).
template <class Compute>
constexpr int64_t kRowBlock = kKeyBlock / 2 * Compute::kDepth;
template <class Compute>
constexpr int64_t kKeysAtOnce = kKeyBlock / 2 * Compute::kDepth;

template <class Compute>
struct BackwardScratch {
  using Unit = typename Compute::Unit;
  static constexpr int64_t kStride = kRowBlock<Compute> + 32;

  // For each block of query rows.
  char* q_keys;        // q laid out as keys are
  char* q_values;      // q laid out as values are
  char* out_keys;      // the output's gradient, likewise
  char* out_values;
  float* grad_q;       // [padded head_dim][kStride], transposed
  float* negative_lse; // [kRowBlock<Compute>], base 2; -inf where the row sees no key
  float* delta;        // [kRowBlock<Compute>]
  float* slope;        // [kRowBlock<Compute>], base 2
  float* diagonal;     // [kRowBlock<Compute>]
  // For the block of keys at hand.
  Unit* k_rows;        // [kKeyBlock][kRowStride]
  Unit* v_rows;        // [kKeyBlock][kRowStride]
  Unit* k_columns;     // [padded head_dim][kRowStride], units of keys
  char* k_values;      // k laid out as values are, on the way to k_columns
  float* grad_k;       // [kKeyBlock][columns]
  float* grad_v;       // [kKeyBlock][columns]
  float* scores;       // [kRowTile][kStride]
  float* grad_scores;  // [kRowTile][kStride]
  Unit* p_rows;        // [kRowTile][kRowStride], probabilities as a left operand
  Unit* s_rows;        // [kRowTile][kRowStride], score gradients as a left operand
  Unit* s_values;      // score gradients in the layout of values: panels of query rows, units of keys

  static FA_INLINE int64_t padded_head_dim(int64_t head_dim) { return round_up(head_dim, Vector::kRowTail); }

  static int64_t bytes(int64_t rows, int64_t head_dim) { return layout(nullptr, rows, head_dim, nullptr); }

  static int64_t layout(char* base, int64_t rows, int64_t head_dim, BackwardScratch* scratch) {
    const int64_t blocks = (rows + kRowBlock<Compute> - 1) / kRowBlock<Compute>;
    const int64_t unit_bytes = static_cast<int64_t>(sizeof(Unit));
    const int64_t columns = Layout<Compute>::columns(head_dim);
    int64_t offset = 0;
    const auto take = [&](auto*& pointer, int64_t bytes) {
      using Pointer = __typeof__(pointer + 0);
      if (base != nullptr) pointer = reinterpret_cast<Pointer>(base + offset);
      offset += round_up(bytes, 64);
    };
    BackwardScratch unused;
    BackwardScratch& s = scratch == nullptr ? unused : *scratch;
    take(s.q_keys, blocks * Layout<Compute>::k_block_bytes(head_dim));
    take(s.q_values, blocks * Layout<Compute>::v_block_bytes(head_dim));
    take(s.out_keys, blocks * Layout<Compute>::k_block_bytes(head_dim));
    take(s.out_values, blocks * Layout<Compute>::v_block_bytes(head_dim));
    take(s.grad_q, blocks * padded_head_dim(head_dim) * kStride * 4);
    take(s.negative_lse, blocks * kRowBlock<Compute> * 4);
    take(s.delta, blocks * kRowBlock<Compute> * 4);
    take(s.slope, blocks * kRowBlock<Compute> * 4);
    take(s.diagonal, blocks * kRowBlock<Compute> * 4);
    take(s.k_rows, kKeyBlock * Compute::kRowStride * unit_bytes);
    take(s.v_rows, kKeyBlock * Compute::kRowStride * unit_bytes);
    take(s.k_columns, padded_head_dim(head_dim) * Compute::kRowStride * unit_bytes);
    take(s.k_values, Layout<Compute>::v_block_bytes(head_dim));
    take(s.grad_k, kKeyBlock * columns * 4);
    take(s.grad_v, kKeyBlock * columns * 4);
    take(s.scores, Vector::kRowTile * kStride * 4);
    take(s.grad_scores, Vector::kRowTile * kStride * 4);
    take(s.p_rows, Vector::kRowTile * Compute::kRowStride * unit_bytes);
    take(s.s_rows, Vector::kRowTile * Compute::kRowStride * unit_bytes);
    take(s.s_values, Layout<Compute>::kValueUnits * kRowBlock<Compute> * unit_bytes);
    return offset;
  }
};

// The query rows that see a key: those of positions whose range of keys holds it.
FA_INLINE KeyRange rows_of_key(int64_t key, const BackwardTask& task) {
  KeyRange range{0, task.q_len};
  const int64_t position = key - (task.k_len - task.q_len);
  if (task.mask.window_right >= 0) range.begin = larger(0, position - task.mask.window_right);
  if (task.mask.window_left >= 0) range.end = smaller(task.q_len, position + task.mask.window_left + 1);
  range.begin = smaller(range.begin, task.q_len);
  range.end = larger(range.end, range.begin);
  return KeyRange{range.begin * task.group, range.end * task.group};
}

template <class T>
FA_INLINE float dot_rows(const T* a, const T* b, int64_t count) {
  Vector::Register sum = Vector::zero();
  int64_t d = 0;
  for (; d + Vector::kLanes <= count; d += Vector::kLanes) sum = Vector::fma(Vector::load(a + d), Vector::load(b + d), sum);
  float lanes[Vector::kLanes];
  Vector::store(lanes, sum);
  float total = 0;
  for (int i = 0; i < Vector::kLanes; ++i) total += lanes[i];
  for (; d < count; ++d) total += to_float(a[d]) * to_float(b[d]);
  return total;
}

template <class Compute, class T>
FA_INLINE void prepare_rows(const BackwardTask& task, const BackwardScratch<Compute>& scratch, int64_t block) {
  const int64_t rows = smaller(kRowBlock<Compute>, task.q_len * task.group - block * kRowBlock<Compute>);
  const void* q_rows[kRowBlock<Compute>];
  const void* out_rows[kRowBlock<Compute>];
  float* negative_lse = scratch.negative_lse + block * kRowBlock<Compute>;
  float* delta = scratch.delta + block * kRowBlock<Compute>;
  for (int64_t r = 0; r < kRowBlock<Compute>; ++r) {
    const int64_t row = block * kRowBlock<Compute> + smaller(r, rows - 1);
    const int64_t position = row / task.group;
    const int64_t head = row % task.group;
    const T* grad_out = static_cast<const T*>(task.grad_out) + position * task.grad_out_row_stride +
                        head * task.grad_out_head_stride;
    q_rows[r] = static_cast<const T*>(task.q) + position * task.q_row_stride + head * task.q_head_stride;
    out_rows[r] = grad_out;
    const int64_t at = position * task.lse_row_stride + head * task.lse_head_stride;
    const T* out = static_cast<const T*>(task.out) + position * task.out_row_stride + head * task.out_head_stride;
    if (position + kPositionsAhead < task.q_len) {
      const int64_t row_bytes = task.head_dim * static_cast<int64_t>(sizeof(T));
      ask_for_row(out + kPositionsAhead * task.out_row_stride, row_bytes);
      ask_for_row(grad_out + kPositionsAhead * task.grad_out_row_stride, row_bytes);
    }
    // With -inf added every probability of the row is zero.
    negative_lse[r] = r >= rows || task.lse[at] == -infinity() ? -infinity() : -task.lse[at] * kLog2E;
    delta[r] = r >= rows ? 0.0f
                         : dot_rows(out, grad_out, task.head_dim) - (task.grad_lse == nullptr ? 0.0f : task.grad_lse[at]);
    scratch.slope[block * kRowBlock<Compute> + r] = task.score.slopes == nullptr ? 0.0f : task.score.slopes[head] * kLog2E;
    scratch.diagonal[block * kRowBlock<Compute> + r] = static_cast<float>(position + task.k_len - task.q_len);
  }
  const int64_t k_bytes = Layout<Compute>::k_block_bytes(task.head_dim);
  const int64_t v_bytes = Layout<Compute>::v_block_bytes(task.head_dim);
  PackBlock pack{q_rows, q_rows, rows, task.head_dim, scratch.q_keys + block * k_bytes, scratch.q_values + block * v_bytes};
  pack_block<Compute, T>(&pack);
  pack = PackBlock{out_rows, out_rows, rows, task.head_dim, scratch.out_keys + block * k_bytes,
                   scratch.out_values + block * v_bytes};
  pack_block<Compute, T>(&pack);
}

template <class Compute, class T>
FA_INLINE void prepare_keys(const BackwardTask& task, const BackwardScratch<Compute>& scratch, int64_t first, int64_t keys) {
  FA_TIMED(kPacking);
  using Unit = typename Compute::Unit;
  const ScoreScale plain{};
  const void* k_rows[kKeyBlock];
  const int64_t units = Layout<Compute>::key_units(task.head_dim);
  for (int64_t key = 0; key < round_up(keys, Vector::kRowTail); ++key) {
    Unit* k_row = scratch.k_rows + key * Compute::kRowStride;
    Unit* v_row = scratch.v_rows + key * Compute::kRowStride;
    if (key >= keys) {
      for (int64_t unit = 0; unit < units; ++unit) k_row[unit] = v_row[unit] = 0;
      continue;
    }
    const T* k = static_cast<const T*>(task.k) + (first + key) * task.k_row_stride;
    k_rows[key] = k;
    load_query<Compute>(k_row, k, task.head_dim, plain);
    load_query<Compute>(v_row, static_cast<const T*>(task.v) + (first + key) * task.v_row_stride, task.head_dim, plain);
  }
  PackBlock pack{nullptr, k_rows, keys, task.head_dim, nullptr, scratch.k_values};
  pack_values<T>(Compute{}, pack);
  const int64_t columns = Layout<Compute>::columns(task.head_dim);
  const int64_t padded = BackwardScratch<Compute>::padded_head_dim(task.head_dim);
  const int64_t key_units = round_up(keys, kPanel) / Compute::kDepth;
  for (int64_t column = 0; column < columns; column += Vector::kLanes) {
    const int64_t panel = column / kPanel * kPanel;
    const int64_t width = smaller(kPanel, columns - panel);
    const Unit* source = reinterpret_cast<const Unit*>(scratch.k_values) + panel * Layout<Compute>::kValueUnits + column - panel;
    for (int64_t unit = 0; unit < key_units; unit += Vector::kLanes) {
      Vector::Register tile[Vector::kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < Vector::kLanes; ++i) {
        tile[i] = Vector::load(reinterpret_cast<const float*>(source + (unit + i) * width));
      }
      Vector::transpose(tile);
      for (int64_t i = 0; i < smaller(Vector::kLanes, padded - column); ++i) {
        Vector::store(reinterpret_cast<float*>(scratch.k_columns + (column + i) * Compute::kRowStride + unit), tile[i]);
      }
    }
  }
}

// Two vectors of one key's row, in the left operand's layout.
FA_INLINE void store_left(FloatCompute, float* row, int64_t column, Vector::Register low, Vector::Register high) {
  store_probabilities(FloatCompute{}, row, column, low, high);
}

// Two vectors of two neighbouring keys' rows, in the layout of values. `values` points at the panel and at the first key.
FA_INLINE void store_right(FloatCompute, float* values, Vector::Register low0, Vector::Register high0, Vector::Register low1,
                           Vector::Register high1) {
  Vector::store(values, low0);
  Vector::store(values + Vector::kLanes, high0);
  Vector::store(values + 2 * Vector::kLanes, low1);
  Vector::store(values + 3 * Vector::kLanes, high1);
}

#ifdef FA_BFLOAT16_PAIRS
FA_INLINE void store_left(PairCompute, uint32_t* row, int64_t column, __m512 low, __m512 high) {
  store_probabilities(PairCompute{}, row, column, low, high);
}

FA_INLINE void store_right(PairCompute, uint32_t* values, __m512 low0, __m512 high0, __m512 low1, __m512 high1) {
  const __m512i even = (__m512i)_mm512_cvtne2ps_pbh(high0, low0);
  const __m512i odd = (__m512i)_mm512_cvtne2ps_pbh(high1, low1);
  alignas(64) static const uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  _mm512_storeu_si512(values, _mm512_permutex2var_epi16(even, low, odd));
  _mm512_storeu_si512(values + 16, _mm512_permutex2var_epi16(even, high, odd));
}
#endif

// Probabilities and score gradients of one vector of query rows for one key.
struct Differentiated {
  Vector::Register probability;
  Vector::Register gradient;
};

struct Differentiator {
  const float* negative_lse_of;
  const float* delta;
  const float* slope;
  const float* diagonal;
  float scale;      // Base 2; with a softcap the factor inside the tanh.
  float cap;        // Base 2; 0 for none.
  bool has_slope;

  template <int kDegree>
  FA_INLINE Differentiated operator()(Vector::Register score, Vector::Register grad_probability, int64_t row, float key,
                                      bool masked, const KeyRange& range) const {
    const Vector::Register negative_lse = Vector::load(negative_lse_of + row);
    Vector::Register inner = Vector::set1(1.0f);
    Vector::Register exponent;
    if (cap > 0) {
      const Vector::Register t = tanh_vector(Vector::mul(score, Vector::set1(scale)));
      inner = Vector::sub(inner, Vector::mul(t, t));
      exponent = Vector::fma(t, Vector::set1(cap), negative_lse);
    } else {
      exponent = Vector::fma(score, Vector::set1(scale), negative_lse);
    }
    if (has_slope) {
      const Vector::Register distance = Vector::abs(Vector::sub(Vector::load(diagonal + row), Vector::set1(key)));
      exponent = Vector::sub(exponent, Vector::mul(Vector::load(slope + row), distance));
    }
    Differentiated result;
    result.probability = exp2_vector<kDegree>(exponent);
    if (masked) {
      const Vector::Register index = Vector::add(Vector::iota(), Vector::set1(static_cast<float>(row)));
      result.probability = Vector::keep_between(result.probability, index, static_cast<float>(range.begin),
                                                static_cast<float>(range.end));
    }
    result.gradient = Vector::mul(result.probability, Vector::sub(grad_probability, Vector::load(delta + row)));
    if (cap > 0) result.gradient = Vector::mul(result.gradient, inner);
    return result;
  }
};

// One block of keys against one block of query rows: adds to grad_k, grad_v and the block's grad_q.
template <class Compute, class T>
FA_INLINE void backward_block(const BackwardTask& task, const BackwardScratch<Compute>& scratch, int64_t first_key,
                              int64_t keys, int64_t row_block) {
  using Unit = typename Compute::Unit;
  constexpr int kDegree = Compute::kDepth == 2 ? 4 : 6;
  constexpr int64_t kStride = BackwardScratch<Compute>::kStride;
  const int64_t first_row = row_block * kRowBlock<Compute>;
  const int64_t rows = smaller(kRowBlock<Compute>, task.q_len * task.group - first_row);
  const int64_t units = Layout<Compute>::key_units(task.head_dim);
  const int64_t columns = Layout<Compute>::columns(task.head_dim);
  const int64_t k_bytes = Layout<Compute>::k_block_bytes(task.head_dim);
  const int64_t v_bytes = Layout<Compute>::v_block_bytes(task.head_dim);
  const Unit* q_keys = reinterpret_cast<const Unit*>(scratch.q_keys + row_block * k_bytes);
  const Unit* q_values = reinterpret_cast<const Unit*>(scratch.q_values + row_block * v_bytes);
  const Unit* out_keys = reinterpret_cast<const Unit*>(scratch.out_keys + row_block * k_bytes);
  const Unit* out_values = reinterpret_cast<const Unit*>(scratch.out_values + row_block * v_bytes);
  Differentiator differentiate;
  differentiate.negative_lse_of = scratch.negative_lse + first_row;
  differentiate.delta = scratch.delta + first_row;
  differentiate.slope = scratch.slope + first_row;
  differentiate.diagonal = scratch.diagonal + first_row;
  differentiate.cap = task.score.softcap * kLog2E;
  differentiate.scale = task.score.softcap > 0 ? task.score.softmax_scale / task.score.softcap
                                               : task.score.softmax_scale * kLog2E;
  differentiate.has_slope = task.score.slopes != nullptr;

  // The keys that each panel of rows was computed for; a contiguous run, since the ranges of keys move one way only.
  int64_t panel_begin[kRowBlock<Compute> / kPanel];
  int64_t panel_end[kRowBlock<Compute> / kPanel];
  for (int64_t panel = 0; panel < kRowBlock<Compute> / kPanel; ++panel) {
    panel_begin[panel] = kKeyBlock;
    panel_end[panel] = 0;
  }
  const int64_t padded_keys = round_up(keys, Vector::kRowTail);
  for (int64_t tile = 0; tile < padded_keys;) {
    const int64_t tile_keys = smaller(Vector::kRowTile, padded_keys - tile);
    KeyRange ranges[Vector::kRowTile];
    int64_t begin = kRowBlock<Compute>;
    int64_t end = 0;
    bool masked = false;
    for (int64_t key = 0; key < tile_keys; ++key) {
      ranges[key] = KeyRange{0, 0};
      if (tile + key < keys) {
        const KeyRange all = rows_of_key(first_key + tile + key, task);
        ranges[key].begin = larger(0, smaller(rows, all.begin - first_row));
        ranges[key].end = larger(0, smaller(rows, all.end - first_row));
      }
      masked = masked || ranges[key].begin > 0 || ranges[key].end < rows;
      if (ranges[key].begin >= ranges[key].end) continue;
      begin = smaller(begin, ranges[key].begin);
      end = larger(end, ranges[key].end);
    }
    if (begin < end) {
      begin = begin / kPanel * kPanel;
      end = round_up(end, kPanel);
      for (int64_t unit = 0; unit < units; unit += kScoreUnits) {
        FA_TIMED(kScoreProducts);
        const int64_t piece = smaller(kScoreUnits, units - unit);
        const float* scale = unit == 0 ? nullptr : kOnes;
        multiply_rows<Compute>(tile_keys, scratch.k_rows + tile * Compute::kRowStride + unit, q_keys + begin * units, units,
                               unit, piece, end - begin, scratch.scores + begin, kStride, scale);
        multiply_rows<Compute>(tile_keys, scratch.v_rows + tile * Compute::kRowStride + unit, out_keys + begin * units, units,
                               unit, piece, end - begin, scratch.grad_scores + begin, kStride, scale);
      }
      for (int64_t key = 0; key < tile_keys; key += 2) {
        FA_TIMED(kExponentials);
        for (int64_t row = begin; row < end; row += kPanel) {
          Differentiated results[2][2];
#pragma GCC unroll 2
          for (int second = 0; second < 2; ++second) {
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
              const int64_t at = row + half * Vector::kLanes;
              results[second][half] = differentiate.template operator()<kDegree>(
                  Vector::load(scratch.scores + (key + second) * kStride + at),
                  Vector::load(scratch.grad_scores + (key + second) * kStride + at), at,
                  static_cast<float>(first_key + tile + key + second), masked, ranges[key + second]);
            }
            const int64_t left = (key + second) * Compute::kRowStride;
            store_left(Compute{}, scratch.p_rows + left, row, results[second][0].probability, results[second][1].probability);
            store_left(Compute{}, scratch.s_rows + left, row, results[second][0].gradient, results[second][1].gradient);
          }
          Unit* values = scratch.s_values + row * Layout<Compute>::kValueUnits + (tile + key) / Compute::kDepth * kPanel;
          store_right(Compute{}, values, results[0][0].gradient, results[0][1].gradient, results[1][0].gradient,
                      results[1][1].gradient);
        }
      }
      FA_TIMED(kValueProducts);
      const int64_t first_unit = begin / Compute::kDepth;
      const int64_t row_units = (end - begin) / Compute::kDepth;
      multiply_rows<Compute>(tile_keys, scratch.p_rows + first_unit, out_values, Layout<Compute>::kValueUnits, first_unit,
                             row_units, columns, scratch.grad_v + tile * columns, columns, kOnes);
      multiply_rows<Compute>(tile_keys, scratch.s_rows + first_unit, q_values, Layout<Compute>::kValueUnits, first_unit,
                             row_units, columns, scratch.grad_k + tile * columns, columns, kOnes);
      for (int64_t panel = begin / kPanel; panel < end / kPanel; ++panel) {
        panel_begin[panel] = smaller(panel_begin[panel], tile);
        panel_end[panel] = larger(panel_end[panel], tile + tile_keys);
      }
    }
    tile += tile_keys;
  }
  float* grad_q = scratch.grad_q + row_block * BackwardScratch<Compute>::padded_head_dim(task.head_dim) * kStride;
  const int64_t padded = BackwardScratch<Compute>::padded_head_dim(task.head_dim);
  for (int64_t panel = 0; panel < kRowBlock<Compute> / kPanel; ++panel) {
    if (panel_begin[panel] >= panel_end[panel]) continue;
    FA_TIMED(kValueProducts);
    const int64_t first_unit = panel_begin[panel] / Compute::kDepth;
    const int64_t key_units = (panel_end[panel] - panel_begin[panel]) / Compute::kDepth;
    for (int64_t d = 0; d < padded;) {
      const int64_t tile_rows = smaller(Vector::kRowTile, padded - d);
      multiply_rows<Compute>(tile_rows, scratch.k_columns + d * Compute::kRowStride + first_unit,
                             scratch.s_values + panel * kPanel * Layout<Compute>::kValueUnits, Layout<Compute>::kValueUnits,
                             first_unit, key_units, kPanel, grad_q + d * kStride + panel * kPanel, kStride, kOnes);
      d += tile_rows;
    }
  }
}

template <class T>
FA_INLINE void store_scaled(T* out, const float* row, int64_t count, float scale) {
  const Vector::Register factor = Vector::set1(scale);
  int64_t d = 0;
  for (; d + Vector::kLanes <= count; d += Vector::kLanes) {
    Vector::store(out + d, Vector::mul(Vector::load(row + d), factor));
  }
  for (; d < count; ++d) from_float(out + d, row[d] * scale);
}

template <class Compute, class T>
void backward_blocks(const BackwardTask* task_pointer) {
  FA_TIMED_TASK();
  const BackwardTask& task = *task_pointer;
  constexpr int64_t kStride = BackwardScratch<Compute>::kStride;
  const int64_t rows = task.q_len * task.group;
  const int64_t row_blocks = (rows + kRowBlock<Compute> - 1) / kRowBlock<Compute>;
  const int64_t columns = Layout<Compute>::columns(task.head_dim);
  const int64_t padded = BackwardScratch<Compute>::padded_head_dim(task.head_dim);
  BackwardScratch<Compute> scratch;
  BackwardScratch<Compute>::layout(static_cast<char*>(task.scratch), rows, task.head_dim, &scratch);
  for (int64_t block = 0; block < row_blocks; ++block) prepare_rows<Compute, T>(task, scratch, block);
  memset(scratch.grad_q, 0, row_blocks * padded * kStride * 4);

  const int64_t last_key = smaller(task.k_len, task.last_block * kKeyBlock);
  for (int64_t first_key = task.first_block * kKeyBlock; first_key < last_key; first_key += kKeysAtOnce<Compute>) {
    const int64_t keys = smaller(kKeysAtOnce<Compute>, last_key - first_key);
    prepare_keys<Compute, T>(task, scratch, first_key, keys);
    memset(scratch.grad_k, 0, kKeyBlock * columns * 4);
    memset(scratch.grad_v, 0, kKeyBlock * columns * 4);
    const int64_t first_row = rows_of_key(first_key, task).begin;
    const int64_t last_row = rows_of_key(first_key + keys - 1, task).end;
    for (int64_t row_block = first_row / kRowBlock<Compute>; row_block * kRowBlock<Compute> < last_row; ++row_block) {
      backward_block<Compute, T>(task, scratch, first_key, keys, row_block);
    }
    for (int64_t key = 0; key < keys; ++key) {
      store_scaled(static_cast<T*>(task.grad_k) + (first_key + key) * task.grad_k_row_stride, scratch.grad_k + key * columns,
                   task.head_dim, task.score.softmax_scale);
      store_scaled(static_cast<T*>(task.grad_v) + (first_key + key) * task.grad_v_row_stride, scratch.grad_v + key * columns,
                   task.head_dim, 1.0f);
    }
  }

  for (int64_t block = 0; block < row_blocks; ++block) {
    const float* grad_q = scratch.grad_q + block * padded * kStride;
    const int64_t block_rows = smaller(kRowBlock<Compute>, rows - block * kRowBlock<Compute>);
    for (int64_t row = 0; row < block_rows; row += Vector::kLanes) {
      for (int64_t d = 0; d < task.head_dim; d += Vector::kLanes) {
        Vector::Register tile[Vector::kLanes];
        for (int64_t i = 0; i < Vector::kLanes; ++i) {
          tile[i] = d + i < padded ? Vector::load(grad_q + (d + i) * kStride + row) : Vector::zero();
        }
        Vector::transpose(tile);
        const int64_t width = smaller(Vector::kLanes, task.head_dim - d);
        for (int64_t i = 0; i < smaller(Vector::kLanes, block_rows - row); ++i) {
          float* out = task.grad_q + (block * kRowBlock<Compute> + row + i) * task.head_dim + d;
          if (width == Vector::kLanes) {
            Vector::store(out, tile[i]);
            continue;
          }
          float lanes[Vector::kLanes];
          Vector::store(lanes, tile[i]);
          memcpy(out, lanes, static_cast<size_t>(width) * 4);
        }
      }
    }
  }
}

template <class T>
void store_gradient(const GradientRow* row_pointer) {
  const GradientRow& row = *row_pointer;
  alignas(64) float sum[kMaxHeadDim];
  for (int64_t d = 0; d < row.head_dim; ++d) sum[d] = row.parts[d];
  for (int64_t part = 1; part < row.count; ++part) {
    for (int64_t d = 0; d < row.head_dim; ++d) sum[d] += row.parts[part * row.stride + d];
  }
  store_scaled(static_cast<T*>(row.out), sum, row.head_dim, row.scale);
}

template <class Compute, class T>
constexpr Kernels kernels() {
  return Kernels{&Layout<Compute>::k_block_bytes,
                        &Layout<Compute>::v_block_bytes,
                        &Scratch<Compute>::bytes,
                        &pack_block<Compute, T>,
                        &forward_rows<Compute, T>,
                        Vector::kRowTile,
                        &Layout<Compute>::columns,
                        kDecodeRows,
                        sizeof(DecodeScratch<Compute, T>),
                        &decode_block<Compute, T>,
                        &merge_rows<T>,
                        &BackwardScratch<Compute>::bytes,
                        &backward_blocks<Compute, T>,
                        &store_gradient<T>};
}

}  // namespace
