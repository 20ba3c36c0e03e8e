// Attention of few query rows (decoding) over one block of keys read where they lie, and the merging of blocks.
//
// Here memory is the limit: every key and value is read once, for all rows of the group. Blocks are independent, so that
// the keys of one sequence are spread over all threads (split-KV; Flash-Decoding), and merge_rows joins them by their
// maxima and totals.
#pragma once

#include "forward_rows.h"

namespace {

// At most as many rows as the softmax handles in one tile; beyond eight, packing pays.
constexpr int64_t kDecodeRows = Vector::kRowTile < 8 ? Vector::kRowTile : 8;

// Keys whose scores are summed side by side, one to an accumulator.
constexpr int kDecodeKeys = Vector::kLanes;

// How far ahead rows are requested, in keys: a row of a cache with interleaved heads is too short for the hardware's
// prefetcher to recognise a stream.
constexpr int64_t kPrefetchKeys = 16;

template <int kLocality>
FA_INLINE void prefetch_row(const void* row, int64_t bytes) {
  for (int64_t offset = 0; offset < bytes; offset += 64) {
    __builtin_prefetch(static_cast<const char*>(row) + offset, 0, kLocality);
  }
}

template <class Compute, class T>
struct DecodeScratch {
  alignas(64) typename Compute::Unit q[kDecodeRows][kMaxHeadDim];
  alignas(64) float scores[kDecodeRows][kKeyBlock + 32];
  alignas(64) typename Compute::Unit probabilities[kDecodeRows][Compute::kRowStride];
  alignas(64) float keys[kDecodeKeys][kMaxHeadDim];  // Converted, where the elements are not what is multiplied.
};

// One vector of units of a row, zeros past the head dimension. With kWhole the head dimension is a multiple of the vector,
// so that no load asks; a branch for each would cost more than the load.
template <class Compute, class T>
struct DecodeReader {
  template <bool kWhole>
  static FA_INLINE Vector::Register keys(const T* row, int64_t unit, int64_t head_dim) {
    if (kWhole || unit + Vector::kLanes <= head_dim) return Vector::load(row + unit);
    return Vector::load_first(row + unit, head_dim - unit);
  }
};

#ifdef FA_BFLOAT16_PAIRS
template <class T>
struct DecodeReader<PairCompute, T> {
  template <bool kWhole>
  static FA_INLINE __m512 keys(const T* row, int64_t unit, int64_t head_dim) {
    return _mm512_castsi512_ps(elements<kWhole>(row + 2 * unit, head_dim - 2 * unit));
  }
  template <bool kWhole>
  static FA_INLINE __m512i elements(const T* p, int64_t count) {
    if (kWhole || count >= 32) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << count) - 1), p);
  }
};
#endif

// scores[row][key] for kDecodeKeys keys from `first` on.
template <class Compute, class T, bool kWhole>
FA_INLINE void score_keys(const DecodeTask& task, DecodeScratch<Compute, T>& scratch, int64_t first) {
  const T* const* rows = reinterpret_cast<const T* const*>(task.k_rows) + first;
  const int64_t units = Layout<Compute>::key_units(task.head_dim);
  const bool convert = sizeof(T) != 4 && Compute::kDepth == 1;
  if (convert) {
    for (int key = 0; key < kDecodeKeys; ++key) {
      for (int64_t unit = 0; unit < units; unit += Vector::kLanes) {
        Vector::store(scratch.keys[key] + unit, DecodeReader<Compute, T>::template keys<kWhole>(rows[key], unit, task.head_dim));
      }
    }
  }
  for (int64_t r = 0; r < task.rows; ++r) {
    Vector::Register sums[kDecodeKeys];
#pragma GCC unroll 16
    for (int key = 0; key < kDecodeKeys; ++key) sums[key] = Vector::zero();
    for (int64_t unit = 0; unit < units; unit += Vector::kLanes) {
      const Vector::Register query = Compute::column(scratch.q[r] + unit);
#pragma GCC unroll 16
      for (int key = 0; key < kDecodeKeys; ++key) {
        const Vector::Register value = convert ? Vector::load(scratch.keys[key] + unit)
                                               : DecodeReader<Compute, T>::template keys<kWhole>(rows[key], unit, task.head_dim);
        sums[key] = Compute::multiply_add(sums[key], query, value);
      }
    }
    Vector::store(scratch.scores[r] + first, Vector::sum_rows(sums));
  }
}

// The rows of keys to ask for while values are summed, in the pass over them that `row` begins; null in the other passes.
FA_INLINE const char* const* next_keys(const DecodeTask& task, int64_t row) {
  return row == 0 ? reinterpret_cast<const char* const*>(task.next_k_rows) : nullptr;
}

// Asks for kVectors vectors of columns of a row. Lines beyond its end are asked for too, which no one can notice.
template <class T, int kVectors>
FA_INLINE void prefetch_columns(const char* row, int64_t column) {
  constexpr int64_t kBytes = kVectors * Vector::kLanes * static_cast<int64_t>(sizeof(T));
#pragma GCC unroll 8
  for (int64_t offset = 0; offset < kBytes; offset += 64) {
    __builtin_prefetch(row + column * static_cast<int64_t>(sizeof(T)) + offset, 0, 2);
  }
}

// sums[row][column..] of kRows rows and kVectors vectors of columns, over keys [begin, end).
template <class Compute, class T, bool kWhole>
struct ValueSum {
  template <int kRows, int kVectors>
  static FA_INLINE void run(const DecodeTask& task, const DecodeScratch<Compute, T>& scratch, int64_t row, int64_t column,
                            int64_t begin, int64_t end, float* sums, int64_t stride) {
    const T* const* rows = reinterpret_cast<const T* const*>(task.v_rows);
    Vector::Register totals[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) totals[r][n] = Vector::zero();
    }
    const char* const* next = next_keys(task, row);
    for (int64_t key = begin; key < end; ++key) {
      if (next != nullptr) prefetch_columns<T, kVectors>(next[key], column);
      Vector::Register values[kVectors];
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) {
        values[n] = DecodeReader<Compute, T>::template keys<kWhole>(rows[key], column + n * Vector::kLanes, task.head_dim);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vector::Register probability = Compute::broadcast(scratch.probabilities[row + r] + key);
#pragma GCC unroll 8
        for (int n = 0; n < kVectors; ++n) totals[r][n] = Vector::fma(probability, values[n], totals[r][n]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) Vector::store(sums + r * stride + n * Vector::kLanes, totals[r][n]);
    }
  }
};

#ifdef FA_BFLOAT16_PAIRS
// Values of two keys are interleaved on the way in, which is what a pair product wants.
template <class T, bool kWhole>
struct ValueSum<PairCompute, T, kWhole> {
  template <int kRows, int kVectors>
  static FA_INLINE void run(const DecodeTask& task, const DecodeScratch<PairCompute, T>& scratch, int64_t row,
                            int64_t column, int64_t begin, int64_t end, float* sums, int64_t stride) {
    static_assert(kVectors % 2 == 0, "32 elements of a row make two vectors");
    using Reader = DecodeReader<PairCompute, T>;
    alignas(64) static const T zeros[kMaxHeadDim] = {};
    alignas(64) static const uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                  8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_load_si512(kLow);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const T* const* rows = reinterpret_cast<const T* const*>(task.v_rows);
    __m512 totals[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) totals[r][n] = Vector::zero();
    }
    const char* const* next = next_keys(task, row);
    for (int64_t key = begin; key < end; key += 2) {
      if (next != nullptr) {
        prefetch_columns<T, kVectors>(next[key], column);
        prefetch_columns<T, kVectors>(next[key + 1], column);
      }
      const T* second = key + 1 < end ? rows[key + 1] : zeros;
      __m512 values[kVectors];
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; n += 2) {
        const int64_t at = column + n * Vector::kLanes;
        const __m512i even = Reader::template elements<kWhole>(rows[key] + at, task.head_dim - at);
        const __m512i odd = Reader::template elements<kWhole>(second + at, task.head_dim - at);
        values[n] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(even, low, odd));
        values[n + 1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(even, high, odd));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512 probability = PairCompute::broadcast(scratch.probabilities[row + r] + key / 2);
#pragma GCC unroll 8
        for (int n = 0; n < kVectors; ++n) {
          totals[r][n] = PairCompute::multiply_add(totals[r][n], probability, values[n]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) {
        if (column + n * Vector::kLanes < stride) Vector::store(sums + r * stride + n * Vector::kLanes, totals[r][n]);
      }
    }
  }
};
#endif

template <class Compute, class T, bool kWhole>
FA_INLINE void sum_values(const DecodeTask& task, const DecodeScratch<Compute, T>& scratch, int64_t begin, int64_t end) {
  constexpr int kVectors = Compute::kDepth == 2 ? 4 : 2;
  const int64_t columns = Layout<Compute>::columns(task.head_dim);
  for (int64_t column = 0; column < columns; column += kVectors * Vector::kLanes) {
    const bool narrow = column + (kVectors - Compute::kDepth) * Vector::kLanes >= columns;
    int64_t row = 0;
    while (row < task.rows) {
      float* sums = task.sums + row * columns + column;
      if (task.rows - row >= 4) {
        if (narrow) {
          ValueSum<Compute, T, kWhole>::template run<4, kVectors / 2>(task, scratch, row, column, begin, end, sums, columns);
        } else {
          ValueSum<Compute, T, kWhole>::template run<4, kVectors>(task, scratch, row, column, begin, end, sums, columns);
        }
        row += 4;
      } else {
        if (narrow) {
          ValueSum<Compute, T, kWhole>::template run<1, kVectors / 2>(task, scratch, row, column, begin, end, sums, columns);
        } else {
          ValueSum<Compute, T, kWhole>::template run<1, kVectors>(task, scratch, row, column, begin, end, sums, columns);
        }
        row += 1;
      }
    }
  }
}

template <class Compute, class T, bool kWhole>
__attribute__((noinline)) void decode_block_of(const DecodeTask& task) {
  constexpr int kDegree = Compute::kDepth == 2 ? 4 : 6;
  DecodeScratch<Compute, T>& scratch = *static_cast<DecodeScratch<Compute, T>*>(task.scratch);
  const int64_t units = Layout<Compute>::key_units(task.head_dim);
  const int64_t columns = Layout<Compute>::columns(task.head_dim);
  const ScoreScale scale = score_scale(task.score);
  const int64_t block_key = task.block * kKeyBlock;

  KeyRange ranges[kDecodeRows];
  int64_t begin = kKeyBlock;
  int64_t end = 0;
  for (int64_t r = 0; r < task.rows; ++r) {
    const int64_t position = r / task.group;
    const int64_t head = r % task.group;
    for (int64_t unit = units; unit < round_up(units, Vector::kLanes); ++unit) scratch.q[r][unit] = 0;
    load_query<Compute>(scratch.q[r], static_cast<const T*>(task.q) + position * task.q_row_stride + head * task.q_head_stride,
                        task.head_dim, scale);
    ranges[r] = keys_in_block(keys_of_position(position, task.q_len, task.k_len, task.mask), block_key);
    if (ranges[r].begin >= ranges[r].end) continue;
    begin = smaller(begin, ranges[r].begin);
    end = larger(end, ranges[r].end);
  }
  if (begin >= end) {
    for (int64_t r = 0; r < task.rows; ++r) {
      task.maximum[r] = -infinity();
      task.total[r] = 0;
      for (int64_t n = 0; n < columns; ++n) task.sums[r * columns + n] = 0;
    }
    return;
  }
  const int64_t first = begin / kPanel * kPanel;
  const int64_t last = round_up(end, kPanel);
  for (int64_t key = first; key < last; key += kDecodeKeys) {
    const int64_t row_bytes = task.head_dim * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < kDecodeKeys; ++i) {
      // Values are asked for while scores are computed, which leaves the memory busy in both halves of the work.
      if (key + i < task.keys) prefetch_row<2>(task.v_rows[key + i], row_bytes);
      if (key + i + kPrefetchKeys < task.keys) prefetch_row<3>(task.k_rows[key + i + kPrefetchKeys], row_bytes);
    }
    score_keys<Compute, T, kWhole>(task, scratch, key);
  }
  alignas(64) float maximum[kStateRows];
  alignas(64) float total[kStateRows * Vector::kLanes] = {};
  alignas(64) float shrink[kStateRows];
  for (int64_t r = 0; r < kStateRows; ++r) maximum[r] = -infinity();
  for (int64_t r = 0; r < task.rows; ++r) {
    const int64_t position = r / task.group;
    mask_scores(scratch.scores[r], first, last, ranges[r], task.score, scale, r % task.group, block_key,
                position + task.k_len - task.q_len);
  }
  softmax_tile<Compute, kDegree>(task.rows, scratch.scores[0], kKeyBlock + 32, scratch.probabilities[0], first, last,
                                 scale.row, maximum, total, shrink);
  for (int64_t r = 0; r < task.rows; ++r) {
    task.maximum[r] = maximum[r];
    task.total[r] = sum_of_lanes(total + r * Vector::kLanes);
  }
  sum_values<Compute, T, kWhole>(task, scratch, first, smaller(end, task.keys));
}

template <class Compute, class T>
void decode_block(const DecodeTask* task) {
  if (task->head_dim % (Vector::kLanes * Compute::kDepth) == 0) {
    decode_block_of<Compute, T, true>(*task);
  } else {
    decode_block_of<Compute, T, false>(*task);
  }
}

template <class T>
void merge_rows(const MergeTask* task_pointer) {
  const MergeTask& task = *task_pointer;
  float maximum = task.sink == nullptr ? -infinity() : *task.sink * kLog2E;
  for (int64_t block = 0; block < task.blocks; ++block) {
    const float of_block = task.maximum[block * task.state_stride];
    if (of_block > maximum || of_block != of_block) maximum = of_block;
  }
  const float base = maximum == -infinity() ? 0.0f : maximum;
  float total = task.sink == nullptr ? 0.0f : exp2_one(*task.sink * kLog2E - base);
  alignas(64) float sums[kMaxHeadDim + Vector::kLanes] = {};
  for (int64_t block = 0; block < task.blocks; ++block) {
    const float weight = exp2_one(task.maximum[block * task.state_stride] - base);
    total += weight * task.total[block * task.state_stride];
    const float* of_block = task.sums + block * task.sums_stride;
    const Vector::Register factor = Vector::set1(weight);
    for (int64_t d = 0; d < task.head_dim; d += Vector::kLanes) {
      Vector::store(sums + d, Vector::fma(factor, Vector::load(of_block + d), Vector::load(sums + d)));
    }
  }
  *task.lse = store_row(static_cast<T*>(task.out), sums, task.head_dim, maximum, total, task.empty);
}

}  // namespace
