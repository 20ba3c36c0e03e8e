#include "torch_binding.h"

#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "paged_fwd(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor cu_seqlens_q, Tensor k_begins, "
      "Tensor k_lens, Tensor? alibi_slopes, Tensor? s_aux, int max_seqlen_q, float softmax_scale, int window_left, "
      "int window_right, float softcap, int num_splits, Tensor(a!) out, Tensor(b!) lse) -> ()");
  ops.def(
      "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slot_mapping) -> ()");
  ops.def("copy_blocks(Tensor(a!) cache, Tensor block_pairs) -> ()");
  ops.def(
      "merge_state(Tensor first, Tensor first_lse, Tensor second, Tensor second_lse, Tensor(a!) out, Tensor(b!) lse) -> ()");
  ops.def("cpu_capability(str request) -> str");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("paged_fwd", TORCH_BOX(&paged_fwd));
  ops.impl("reshape_and_cache", TORCH_BOX(&reshape_and_cache));
  ops.impl("copy_blocks", TORCH_BOX(&copy_blocks));
  ops.impl("merge_state", TORCH_BOX(&merge_state));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, ops) {
  ops.impl("cpu_capability", TORCH_BOX(&cpu_capability));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
