// The weights that a convolution is created from: dense columns, or the panels of a file. A column has a
// depth for each (tap, channel of the group). Most layouts have the order of a file's panels: they use the
// panels directly, without dense columns.
#ifndef INTACT_KERNELS_PLANS_CONV_WEIGHTS_H_
#define INTACT_KERNELS_PLANS_CONV_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/problem/operands.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {

class ConvWeights {
 public:
  explicit ConvWeights(const WeightView& dense) : dense_(dense) {}
  /// `mapping` keeps the memory of `panels` alive. If `mapping` is null, this memory outlives the creation of
  /// the plan.
  ConvWeights(const PackedWeights* panels, std::shared_ptr<const void> mapping)
      : panels_(panels), mapping_(std::move(mapping)) {}

  /// The panels of a file, or null.
  const PackedWeights* panels() const { return panels_; }
  const std::shared_ptr<const void>& mapping() const { return mapping_; }
  /// Dense columns; made from the panels in the first call.
  const WeightView& Dense() {
    if (dense_.data != nullptr) return dense_;
    columns_ = std::make_unique_for_overwrite<int8_t[]>(static_cast<size_t>(panels_->k * panels_->n));
    CopyColumns(*panels_, columns_.get());
    // Panels hold weights as kernels see them: no shift.
    dense_ = {columns_.get(), panels_->k, panels_->n, 1, panels_->k, 0};
    return dense_;
  }

 private:
  WeightView dense_;
  const PackedWeights* panels_ = nullptr;
  std::shared_ptr<const void> mapping_;
  std::unique_ptr<int8_t[]> columns_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_WEIGHTS_H_
