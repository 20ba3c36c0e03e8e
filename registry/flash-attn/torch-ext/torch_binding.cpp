#include "torch_binding.h"

#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "fwd(Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes, Tensor? s_aux, float softmax_scale, int window_left, "
      "int window_right, float softcap) -> (Tensor, Tensor)");
  ops.def(
      "varlen_fwd(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor k_begins, Tensor k_lens, "
      "Tensor? block_table, Tensor? alibi_slopes, Tensor? s_aux, int max_seqlen_q, int max_seqlen_k, float softmax_scale, "
      "int window_left, int window_right, float softcap) -> (Tensor, Tensor)");
  ops.def(
      "bwd(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
      "Tensor? alibi_slopes, float softmax_scale, int window_left, int window_right, float softcap) "
      "-> (Tensor, Tensor, Tensor)");
  ops.def(
      "varlen_bwd(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
      "Tensor cu_seqlens_q, Tensor k_begins, Tensor k_lens, Tensor? alibi_slopes, int max_seqlen_q, int max_seqlen_k, "
      "float softmax_scale, int window_left, int window_right, float softcap) -> (Tensor, Tensor, Tensor)");
  ops.def("cpu_capability(str request) -> str");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("fwd", TORCH_BOX(&fwd));
  ops.impl("varlen_fwd", TORCH_BOX(&varlen_fwd));
  ops.impl("bwd", TORCH_BOX(&bwd));
  ops.impl("varlen_bwd", TORCH_BOX(&varlen_bwd));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, ops) {
  ops.impl("cpu_capability", TORCH_BOX(&cpu_capability));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
