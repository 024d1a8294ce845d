#include "blocks.h"

#include <cstring>
#include <optional>
#include <span>

namespace intact::onnxruntime {

DequantizedBlocks::DequantizedBlocks(const Node& node) {
  const intact_type type = node.Type(0, {INTACT_U8, INTACT_S8});
  const Constant x = node.Weights(0, type), scales = node.ConstantOf(1, INTACT_F32);
  const auto dimensions = static_cast<int64_t>(x.shape.size());
  const int64_t block = node.Integer("block_size", 0);
  int64_t axis = node.Integer("axis", 1);
  if (axis < 0) axis += dimensions;
  if (block < 1 || axis < 0 || axis >= dimensions) throw Refusal("axis, block_size: describe no blocks");
  const int64_t extent = x.shape[static_cast<size_t>(axis)], blocks = (extent + block - 1) / block;
  Shape expected = x.shape;
  expected[static_cast<size_t>(axis)] = blocks;
  if (scales.shape != expected) throw Refusal("x_scale: has another shape than the blocks; expected theirs");
  std::optional<Constant> zero_points;
  if (node.Has(2)) zero_points = node.ConstantOf(2, type);
  if (zero_points && zero_points->shape != expected)
    throw Refusal("x_zero_point: has another shape than x_scale; expected one shape");

  const int64_t inner = CountOf(std::span(x.shape).subspan(static_cast<size_t>(axis) + 1));
  shape_ = x.shape;
  weights_.resize(static_cast<size_t>(x.count));
  const auto of_blocks = scales.As<float>();
  for (int64_t i = 0; i < x.count; ++i) {
    const int64_t outer = i / (extent * inner), along = i / inner % extent;
    const int64_t place = (outer * blocks + along / block) * inner + i % inner;
    const int32_t value = x.Integer(i) - (zero_points ? zero_points->Integer(place) : 0);
    weights_[static_cast<size_t>(i)] = static_cast<float>(value) * of_blocks[static_cast<size_t>(place)];
  }
}

void DequantizedBlocks::Compute(Run& run) const {
  std::memcpy(run.Output(shape_), weights_.data(), weights_.size() * sizeof(float));
}

}  // namespace intact::onnxruntime
