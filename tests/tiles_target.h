// Plans on AMX that run every M on tiles, where the library itself leaves small ones to AVX-512-VNNI.
#ifndef INTACT_TESTS_TILES_TARGET_H_
#define INTACT_TESTS_TILES_TARGET_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/gemm.h"
#include "verify/guarded_matrix.h"
#include "verify/target.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {

class TilesTarget final : public verify::Target {
 public:
  std::string Name() const override { return "tiles"; }

  Result<std::vector<uint8_t>> Run(const reference::Gemm& gemm,
                                   const verify::RunOptions& options) const override {
    Result<std::unique_ptr<kernels::GemmPlan>> plan =
        kernels::GemmPlan::Create(verify::DescOf(gemm, options), gemm.b.data());
    if (!plan) return plan.error();
    if (!kernels::UsesTiles((*plan)->isa())) return Error{INTACT_UNSUPPORTED, "the plan has no tiles"};
    constexpr int64_t kLargeM = 1 << 20;
    (*plan)->RunAllAs(kLargeM);

    const int64_t size = reference::ElementSize(gemm.c_type);
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = gemm.m;
    args.a_stride = gemm.k + options.a_pad;
    args.c_stride = gemm.n + options.c_pad;
    args.threads = options.threads;
    Result<verify::GuardedMatrix> a = verify::GuardedMatrix::Allocate(gemm.m, gemm.k, args.a_stride);
    if (!a) return a.error();
    const Result<verify::GuardedMatrix> c =
        verify::GuardedMatrix::Allocate(gemm.m, gemm.n * size, args.c_stride * size);
    if (!c) return c.error();
    a->Load(gemm.a.data());
    args.a = a->data();
    args.c = c->data();
    const Error error = (*plan)->Run(args);
    if (error.status != INTACT_OK) return error;
    if (const auto stray = c->StrayWrite()) return Error{INTACT_CODEGEN_FAILED, "wrote outside C: " + *stray};
    return c->Dense();
  }
};

}  // namespace intact::tests
#endif  // INTACT_TESTS_TILES_TARGET_H_
