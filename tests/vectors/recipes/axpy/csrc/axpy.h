#pragma once

#include <torch/csrc/stable/tensor.h>

torch::stable::Tensor axpy(double a, const torch::stable::Tensor& x, const torch::stable::Tensor& y);
