// Few rows of A times a runtime B that is not packed: packing would take longer than the product.
//
//   1. The sums of all columns go to scratch (unpacked_product.h). A is extended by a row of ones. This row
//   gives the sums of B's columns.
//   2. The constants of the columns are computed from the sums of B's columns.
//   3. A microkernel that multiplies zeros starts from the sums, and applies the epilogue.
#ifndef INTACT_KERNELS_ENGINES_UNPACKED_ENGINE_H_
#define INTACT_KERNELS_ENGINES_UNPACKED_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/microkernel.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/unpacked_product.h"

namespace intact::kernels {

class UnpackedEngine final : public Engine {
 public:
  /// Whether the engine can run the plan: B has contiguous rows or columns, and no pair sums saturate.
  static bool CanRun(const GemmData& data, core::Isa isa);
  /// `data` must outlive the engine.
  static Result<std::unique_ptr<Engine>> Create(const GemmData& data, core::Isa isa);

  EngineId id() const override { return {EngineId::Kind::kUnpacked}; }
  EngineTile tile() const override { return {kRows, UnpackedProduct::kColumns, kPanelColumns}; }
  std::string KernelName() const override { return kernel_name_; }
  RuntimeForm runtime_form() const override { return RuntimeForm::kUnpacked; }
  double Cost(int64_t m) const override;
  int64_t ScratchBytes(int64_t rows) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

 private:
  static constexpr int kRows = 8;  // rows of a block
  static constexpr std::array<int, 2> kStores = {kPanelColumns, 4 * kPanelColumns};

  UnpackedEngine(const GemmData& data, core::Isa isa)
      : data_(data), isa_(isa), product_(UnpackedProduct::For(isa, data.linear->layout())) {}
  int64_t PaddedDepth() const { return RoundUp(data_.k, UnpackedProduct::kDepths); }
  int64_t SumsStride() const { return RoundUp(data_.n, UnpackedProduct::kColumns); }
  void StoreRow(const RunBuffers& buffers, int64_t row, const Range& range, const int32_t* sums,
                uint8_t* scratch_tile) const noexcept;
  void StoreEdge(const RunBuffers& buffers, int64_t row, int64_t column, int64_t columns,
                 uint8_t* scratch_tile, MicrokernelArgs* call) const noexcept;

  const GemmData& data_;
  core::Isa isa_;
  UnpackedProduct product_;
  std::string kernel_name_;
  std::array<MicrokernelFunction, kStores.size()> stores_;  // stores_[i] stores a row of kStores[i] columns
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_UNPACKED_ENGINE_H_
