#include "products.h"

#include <omp.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>

#include "../parts.h"

namespace intact::ggml {
namespace {

// Calls run(part, parts) for each part, on the threads of a parallel region: ggml's CPU backend computes in such regions on the
// same thread, so both use one pool.
template <class Run>
intact_status OnThreads(const integrations::PlanWork& work, int threads, const Run& run) {
  static const double part_products = integrations::PartProducts(INTACT_ISA_ANY);
  const int parts = integrations::PartsOf(work, part_products, threads);
  if (parts == 1) return run(0, 1);
  std::atomic<intact_status> status = INTACT_OK;
#pragma omp parallel num_threads(parts)
  for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
    const intact_status own = run(part, parts);
    if (own != INTACT_OK) status = own;
  }
  return status;
}

integrations::PlanWork WorkOf(const ggml_tensor* node) {
  return {ggml_nrows(node), node->ne[0], node->src[0]->ne[0]};
}

intact_status Run(const intact_grouped* plan, const intact_grouped_args& args, const ggml_tensor* node,
                  int threads) {
  return OnThreads(WorkOf(node), threads,
                   [&](int part, int parts) { return intact_grouped_run_part(plan, &args, part, parts); });
}

std::byte* RowOf(const ggml_tensor* tensor, int64_t i1, int64_t i2, int64_t i3) {
  return static_cast<std::byte*>(tensor->data) + i1 * static_cast<int64_t>(tensor->nb[1]) +
         i2 * static_cast<int64_t>(tensor->nb[2]) + i3 * static_cast<int64_t>(tensor->nb[3]);
}

// Writes the row's numbers to `to`, as floats.
void ReadRow(const ggml_tensor* rows, const std::byte* row, float* to) {
  const int64_t k = rows->ne[0];
  if (rows->type != GGML_TYPE_F32) return ggml_get_type_traits(rows->type)->to_float(row, to, k);
  if (rows->nb[0] == sizeof(float)) {
    std::memcpy(to, row, static_cast<size_t>(k) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < k; ++i)
    std::memcpy(to + i, row + i * static_cast<int64_t>(rows->nb[0]), sizeof(float));
}

// Whether intact_grouped_args describe these rows.
bool AreInPlace(const ggml_tensor* rows) {
  if (rows->type != GGML_TYPE_F32) return false;
  const bool is_matrix = rows->ne[2] == 1 && rows->ne[3] == 1;
  return ggml_is_contiguous(rows) ||
         (is_matrix && rows->nb[0] == sizeof(float) && rows->nb[1] % sizeof(float) == 0 &&
          rows->nb[1] >= static_cast<size_t>(rows->ne[0]) * rows->nb[0]);
}

// A row of C, the row of A that it is made of, and the number of the matrix that multiplies this row.
struct Row {
  const std::byte* a;
  std::byte* c;
  int64_t matrix;
};

// Copies rows of A, sorted by matrix, multiplies them, and copies the rows of C. row_of(i) is row i of C.
template <class OfRow>
intact_status MultiplyCopies(const intact_grouped* plan, const ggml_tensor* node, int threads,
                             RowMemory* memory, const OfRow& row_of) {
  const ggml_tensor* const weights = node->src[0];
  const int64_t matrices = weights->ne[2] * weights->ne[3], k = weights->ne[0], n = node->ne[0];
  const int64_t count = ggml_nrows(node);
  try {
    memory->a.resize(static_cast<size_t>(count * k));
    memory->c.resize(static_cast<size_t>(count * n));
    memory->places.resize(static_cast<size_t>(count));
    memory->counts.assign(static_cast<size_t>(matrices), 0);
  } catch (const std::bad_alloc&) {
    return INTACT_OUT_OF_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t matrix = row_of(i).matrix;
    if (matrix < 0 || matrix >= matrices) return INTACT_INVALID_ARGUMENT;
    ++memory->counts[static_cast<size_t>(matrix)];
  }
  for (int64_t matrix = 0, place = 0; matrix < matrices; ++matrix) {
    if (memory->counts[static_cast<size_t>(matrix)] == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      const Row row = row_of(i);
      if (row.matrix != matrix) continue;
      ReadRow(node->src[1], row.a, &memory->a[static_cast<size_t>(place * k)]);
      memory->places[static_cast<size_t>(place++)] = i;
    }
  }
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = count;
  args.a = memory->a.data();
  args.c = memory->c.data();
  args.expert_rows = memory->counts.data();
  const intact_status status = Run(plan, args, node, threads);
  for (int64_t place = 0; place < count; ++place)
    std::memcpy(row_of(memory->places[static_cast<size_t>(place)]).c,
                &memory->c[static_cast<size_t>(place * n)], static_cast<size_t>(n) * sizeof(float));
  return status;
}

}  // namespace

bool HasRows(const ggml_tensor* op) {
  const ggml_tensor *rows = op->src[1], *ids = op->src[2];
  if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) return false;
  if (op->op == GGML_OP_MUL_MAT_ID && ids->type != GGML_TYPE_I32) return false;
  return rows->type == GGML_TYPE_F32 ||
         (ggml_get_type_traits(rows->type)->to_float != nullptr && rows->nb[0] == ggml_type_size(rows->type));
}

intact_status Multiply(const intact_grouped* plan, const ggml_tensor* node, int threads, RowMemory* memory) {
  const ggml_tensor *weights = node->src[0], *rows = node->src[1];
  if (weights->ne[2] * weights->ne[3] != 1 || !AreInPlace(rows))
    return MultiplyCopies(plan, node, threads, memory, [&](int64_t i) -> Row {
      const int64_t i1 = i % node->ne[1], i2 = i / node->ne[1] % node->ne[2],
                    i3 = i / node->ne[1] / node->ne[2];
      // A matrix multiplies adjacent matrices of rows.
      const int64_t of2 = i2 / (node->ne[2] / weights->ne[2]), of3 = i3 / (node->ne[3] / weights->ne[3]);
      return {RowOf(rows, i1, i2, i3), RowOf(node, i1, i2, i3), of3 * weights->ne[2] + of2};
    });
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = ggml_nrows(rows);
  args.a = rows->data;
  // Strides of dimensions of one element are arbitrary.
  args.a_stride = ggml_is_contiguous(rows) ? rows->ne[0] : static_cast<int64_t>(rows->nb[1] / sizeof(float));
  args.c = node->data;
  return Run(plan, args, node, threads);
}

intact_status MultiplyById(const intact_grouped* plan, const ggml_tensor* node, int threads,
                           RowMemory* memory) {
  const ggml_tensor *rows = node->src[1], *ids = node->src[2];
  return MultiplyCopies(plan, node, threads, memory, [&](int64_t i) -> Row {
    const int64_t slot = i % ids->ne[0], token = i / ids->ne[0];
    int32_t expert = 0;
    std::memcpy(&expert, RowOf(ids, token, 0, 0) + slot * static_cast<int64_t>(ids->nb[0]), sizeof(expert));
    return {RowOf(rows, slot % rows->ne[1], token, 0), RowOf(node, slot, token, 0), expert};
  });
}

}  // namespace intact::ggml
