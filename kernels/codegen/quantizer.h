// Quantizes numbers of A to 8 bits, a row or more at a time: the contract's dynamic quantization
// (include/intact/intact.h).
//
//   Scan ─► NumberRange ─► Choose ─► RowQuantization ─► Quantize ─► a row of u8 or s8, as GEMMs read A
#ifndef INTACT_KERNELS_CODEGEN_QUANTIZER_H_
#define INTACT_KERNELS_CODEGEN_QUANTIZER_H_

#include <intact/intact.h>

#include <array>
#include <compare>
#include <cstdint>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "jit/function.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/codegen/number_range.h"
#include "kernels/problem/access.h"

namespace intact::kernels {

class Quantizer {
 public:
  Quantizer() = default;
  /// Quantizes `source`, one of core::kSourceTypes, to `a_type`. A CODEGEN_FAILED error names the kernel.
  static Result<Quantizer> Create(core::Isa isa, intact_type a_type, intact_type source);

  /// The range of `count` numbers. No alignment is needed. This and the following functions need the default
  /// floating-point environment.
  NumberRange Scan(const uint8_t* x, int64_t count) const noexcept;
  RowQuantization Choose(const NumberRange& range) const noexcept;
  /// Writes `count` bytes; zero points if there is no scale. The definition divides x by the scale. The
  /// kernel computes x·high + x·low: it rounds the second product, and the sum once. The result rounds to the
  /// quotient's integer: quantizer_test.cc tries all mantissas of scales, and all x near ties.
  void Quantize(const uint8_t* x, int64_t count, const RowQuantization& how, uint8_t* a) const noexcept;
  /// Quantizes rows [begin, end) of `k` numbers, each with its own scale. Row begin + i goes to a + i·stride.
  /// Sets the rows' zero points and scales in `values`, from row `begin` on. `stride` is at least k. Bytes
  /// between rows are undefined. Nothing is written behind the last row's k bytes. Returns whether each row has
  /// a scale.
  bool QuantizeRows(const RowMap& rows, int64_t begin, int64_t end, int64_t k, uint8_t* a, int64_t stride,
                    RowValues* values) const noexcept;

 private:
  // The two functions have keys of different types, so that the code cache keeps them apart.
  struct ScanSpec {
    core::Isa isa;
    intact_type source;
    auto operator<=>(const ScanSpec&) const = default;
  };
  struct QuantizeSpec {
    core::Isa isa;
    intact_type a_type, source;
    auto operator<=>(const QuantizeSpec&) const = default;
  };
  struct ScanArgs {
    const uint8_t* x = nullptr;
    int64_t blocks = 0, steps = 0;  // blocks, then steps; not both 0
    // Results. The low element is the largest signed number (`positive`) or unsigned number (`negative`).
    uint64_t positive = 0, negative = 0;
  };
  // 1/scale = high + low, high the nearest float.
  struct Reciprocal {
    float high = 1.0f, low = 0.0f;
  };
  struct QuantizeArgs {
    const uint8_t* x = nullptr;
    uint8_t* a = nullptr;
    int64_t blocks = 0, steps = 0;  // blocks, then steps; not both 0
    Reciprocal reciprocal;
    int32_t zero_point = 0;
    const int32_t* pack_order = nullptr;
    // Scratch for a vector of zero points. The function itself fills the scratch and loads whole vectors from
    // it. Narrower stores by the caller would delay these loads.
    alignas(64) std::array<int16_t, 32> zero_points;
  };
  using ScanFunction = jit::Function<void(ScanArgs*)>;
  using QuantizeFunction = jit::Function<void(QuantizeArgs*)>;
  static Result<jit::Code> GenerateScan(const ScanSpec& spec);
  static Result<jit::Code> GenerateQuantize(const QuantizeSpec& spec);
  int64_t source_bytes() const { return core::BytesOf(source_); }
  // Whether 1/scale has a Reciprocal. Otherwise the kernel is not used. Choose() of short_rows.cc computes
  // the results of this function, of ReciprocalOf() and of Choose() for eight rows at a time.
  static bool HasReciprocal(float scale) noexcept;
  static Reciprocal ReciprocalOf(float scale) noexcept;
  /// The number at `x`, as float32.
  float At(const uint8_t* x) const noexcept;
  NumberRange RangeOf(const ScanArgs& args) const noexcept;

  intact_type a_type_ = INTACT_U8, source_ = INTACT_F32;
  // Numbers that the functions process at a time: in a block, and in a step (a vector of int32). 0 in portable
  // plans.
  int64_t block_ = 0, step_ = 0;
  std::array<int32_t, 16> pack_order_ = {};
  ScanFunction scan_;
  QuantizeFunction quantize_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_QUANTIZER_H_
