#include "cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "elements.h"
#include "parallel.h"

namespace paged_attention {
namespace {

// Rows merged by one task: enough that drawing a task costs nothing beside it.
constexpr int64_t kMergeRows = 64;

template <class T>
void merge_row(const Merge& merge, int64_t row) {
  const float first_lse = merge.first_lse[row];
  const float second_lse = merge.second_lse[row];
  const T* first = static_cast<const T*>(merge.first) + row * merge.head_dim;
  const T* second = static_cast<const T*>(merge.second) + row * merge.head_dim;
  T* out = static_cast<T*>(merge.out) + row * merge.head_dim;
  const float empty = -std::numeric_limits<float>::infinity();
  const float maximum = second_lse > first_lse || std::isnan(second_lse) ? second_lse : first_lse;
  // A part that saw no key counts for nothing, whatever its rows hold.
  const bool has_first = first_lse != empty;
  const bool has_second = second_lse != empty;
  const float first_weight = has_first ? std::exp(first_lse - maximum) : 0.0f;
  const float second_weight = has_second ? std::exp(second_lse - maximum) : 0.0f;
  const float total = first_weight + second_weight;
  const float inverse = has_first || has_second ? 1.0f / total : 0.0f;
  for (int64_t d = 0; d < merge.head_dim; ++d) {
    const float a = has_first ? to_float(first[d]) * (first_weight * inverse) : 0.0f;
    const float b = has_second ? to_float(second[d]) * (second_weight * inverse) : 0.0f;
    from_float(out + d, a + b);
  }
  merge.lse[row] = has_first || has_second ? maximum + std::log(total) : empty;
}

}  // namespace

void write_rows(const Rows* tensors, int64_t count, int64_t heads, const int64_t* slots, int64_t tokens, int64_t page_size) {
  // Threads share the heads and not the tokens, so that rows with one slot are written in order.
  flash_attn::for_each_task(count * heads, 0, [&](int64_t index, char*) {
    const Rows& tensor = tensors[index / heads];
    const int64_t head = index % heads;
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t slot = slots[token];
      if (slot < 0) continue;
      std::memcpy(tensor.cache + slot / page_size * tensor.page_stride + slot % page_size * tensor.token_stride +
                      head * tensor.cache_head_stride,
                  tensor.rows + token * tensor.row_stride + head * tensor.head_stride, tensor.head_bytes);
    }
  });
}

void copy_pages(char* cache, int64_t page_stride_bytes, int64_t page_bytes, const int64_t* pairs, int64_t count) {
  flash_attn::for_each_task(count, 0, [&](int64_t index, char*) {
    std::memcpy(cache + pairs[2 * index + 1] * page_stride_bytes, cache + pairs[2 * index] * page_stride_bytes, page_bytes);
  });
}

void merge(const Merge& merge) {
  flash_attn::for_each_task((merge.rows + kMergeRows - 1) / kMergeRows, 0, [&](int64_t index, char*) {
    const int64_t end = std::min(merge.rows, (index + 1) * kMergeRows);
    for (int64_t row = index * kMergeRows; row < end; ++row) {
      switch (merge.type) {
        case flash_attn::ElementType::kFloat32:
          merge_row<float>(merge, row);
          break;
        case flash_attn::ElementType::kBFloat16:
          merge_row<bfloat16>(merge, row);
          break;
        case flash_attn::ElementType::kFloat16:
          merge_row<float16>(merge, row);
          break;
      }
    }
  });
}

}  // namespace paged_attention
