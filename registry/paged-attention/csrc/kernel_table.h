// What one instruction set offers here: attention forward and the merging of its parts. There are no gradients through a
// cache, so those entries of the shared table stay empty.
#pragma once

#include "decode_block.h"

namespace {

template <class Compute, class T>
Kernels kernels() {
  Kernels table{};
  table.k_block_bytes = &Layout<Compute>::k_block_bytes;
  table.v_block_bytes = &Layout<Compute>::v_block_bytes;
  table.scratch_bytes = &Scratch<Compute>::bytes;
  table.pack_block = &pack_block<Compute, T>;
  table.forward_rows = &forward_rows<Compute, T>;
  table.row_tile = Vector::kRowTile;
  table.columns = &Layout<Compute>::columns;
  table.decode_rows = kDecodeRows;
  table.decode_scratch_bytes = sizeof(DecodeScratch<Compute, T>);
  table.decode_block = &decode_block<Compute, T>;
  table.merge_rows = &merge_rows<T>;
  return table;
}

}  // namespace
