// Products of ggml's graphs, on packed weights.
#ifndef INTACT_INTEGRATIONS_GGML_PRODUCTS_H_
#define INTACT_INTEGRATIONS_GGML_PRODUCTS_H_

#include <ggml.h>
#include <intact/grouped.h>

#include <cstdint>
#include <vector>

namespace intact::ggml {

/// Memory for copies of rows. It grows, and is kept between products.
struct RowMemory {
  std::vector<float> a, c;
  std::vector<int64_t> counts, places;
};

/// Whether Multiply() and MultiplyById() take the activations of MUL_MAT and MUL_MAT_ID. They take more than ggml's CPU backend:
/// rows of floats with any strides, and rows of other types that ggml converts to floats.
bool HasRows(const ggml_tensor* op);

/// Computes a MUL_MAT node. `plan` holds its matrices of weights. Runs on `threads` threads of OpenMP, like ggml's CPU backend.
/// Errors: OUT_OF_MEMORY.
intact_status Multiply(const intact_grouped* plan, const ggml_tensor* node, int threads, RowMemory* memory);

/// Computes a MUL_MAT_ID node. `plan` holds the weights of its experts. Errors: INVALID_ARGUMENT (an expert does not exist),
/// OUT_OF_MEMORY.
intact_status MultiplyById(const intact_grouped* plan, const ggml_tensor* node, int threads,
                           RowMemory* memory);

}  // namespace intact::ggml

#endif  // INTACT_INTEGRATIONS_GGML_PRODUCTS_H_
