#include "products.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>

namespace intact::ggml {
namespace {

// Calls run(part, parts) for each part, on the threads of a parallel region: ggml's CPU backend computes in such regions on the
// same thread, so both use one pool.
template <class Run>
intact_status OnThreads(double multiply_adds, int threads, const Run& run) {
  // Less work takes less time than beginning a parallel region.
  constexpr double kMultiplyAddsOfPart = 1 << 16;
  const int parts = static_cast<int>(std::clamp(multiply_adds / kMultiplyAddsOfPart, 1.0, double(threads)));
  if (parts == 1) return run(0, 1);
  std::atomic<intact_status> status = INTACT_OK;
#pragma omp parallel num_threads(parts)
  for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
    const intact_status own = run(part, parts);
    if (own != INTACT_OK) status = own;
  }
  return status;
}

double MultiplyAdds(const ggml_tensor* node) {
  return static_cast<double>(ggml_nelements(node)) * static_cast<double>(node->src[0]->ne[0]);
}

intact_status Run(const intact_grouped* plan, const intact_grouped_args& args, const ggml_tensor* node,
                  int threads) {
  return OnThreads(MultiplyAdds(node), threads,
                   [&](int part, int parts) { return intact_grouped_run_part(plan, &args, part, parts); });
}

// A row of a tensor of three dimensions.
float* RowOf(const ggml_tensor* tensor, int64_t i1, int64_t i2) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(tensor->data) +
                                  i1 * static_cast<int64_t>(tensor->nb[1]) +
                                  i2 * static_cast<int64_t>(tensor->nb[2]));
}

}  // namespace

bool HasRows(const ggml_tensor* op) {
  const ggml_tensor *rows = op->src[1], *ids = op->src[2];
  if (rows->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) return false;
  if (op->op == GGML_OP_MUL_MAT_ID)
    return rows->nb[0] == sizeof(float) && rows->ne[3] == 1 && ids->type == GGML_TYPE_I32;
  const bool is_matrix = rows->ne[2] == 1 && rows->ne[3] == 1;
  return ggml_is_contiguous(rows) ||
         (is_matrix && rows->nb[0] == sizeof(float) && rows->nb[1] % sizeof(float) == 0 &&
          rows->nb[1] >= rows->ne[0] * rows->nb[0]);
}

intact_status Multiply(const intact_grouped* plan, ggml_tensor* node, int threads) {
  const ggml_tensor* rows = node->src[1];
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = ggml_nrows(rows);
  args.a = rows->data;
  // Strides of dimensions of one element are arbitrary.
  args.a_stride = ggml_is_contiguous(rows) ? rows->ne[0] : static_cast<int64_t>(rows->nb[1] / sizeof(float));
  args.c = node->data;
  return Run(plan, args, node, threads);
}

intact_status MultiplyById(const intact_grouped* plan, ggml_tensor* node, int threads, RowMemory* memory) {
  const ggml_tensor *weights = node->src[0], *rows = node->src[1], *ids = node->src[2];
  const int64_t experts = weights->ne[2], k = weights->ne[0], n = node->ne[0];
  const int64_t slots = ids->ne[0], tokens = ids->ne[1], count = slots * tokens;
  const auto expert_of = [&](int64_t i) {
    const std::byte* const id = static_cast<const std::byte*>(ids->data) +
                                i % slots * static_cast<int64_t>(ids->nb[0]) +
                                i / slots * static_cast<int64_t>(ids->nb[1]);
    return int64_t{*reinterpret_cast<const int32_t*>(id)};
  };
  try {
    memory->a.resize(static_cast<size_t>(count * k));
    memory->c.resize(static_cast<size_t>(count * n));
    memory->places.resize(static_cast<size_t>(count));
    memory->counts.assign(static_cast<size_t>(experts), 0);
  } catch (const std::bad_alloc&) {
    return INTACT_OUT_OF_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t expert = expert_of(i);
    if (expert < 0 || expert >= experts) return INTACT_INVALID_ARGUMENT;
    ++memory->counts[static_cast<size_t>(expert)];
  }
  // Rows sorted by expert.
  for (int64_t expert = 0, place = 0; expert < experts; ++expert) {
    if (memory->counts[static_cast<size_t>(expert)] == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      if (expert_of(i) != expert) continue;
      std::memcpy(&memory->a[static_cast<size_t>(place * k)], RowOf(rows, i % slots % rows->ne[1], i / slots),
                  static_cast<size_t>(k) * sizeof(float));
      memory->places[static_cast<size_t>(place++)] = i;
    }
  }
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = count;
  args.a = memory->a.data();
  args.c = memory->c.data();
  args.expert_rows = memory->counts.data();
  const intact_status status = Run(plan, args, node, threads);
  for (int64_t place = 0; place < count; ++place) {
    const int64_t i = memory->places[static_cast<size_t>(place)];
    std::memcpy(RowOf(node, i % slots, i / slots), &memory->c[static_cast<size_t>(place * n)],
                static_cast<size_t>(n) * sizeof(float));
  }
  return status;
}

}  // namespace intact::ggml
