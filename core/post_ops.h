// Post-operations follow an operation's scaled and biased sums, in order. The C interface has a field for
// each post-operation. PostOpsOf() reads the fields once, when a descriptor comes in.
#ifndef INTACT_CORE_POST_OPS_H_
#define INTACT_CORE_POST_OPS_H_

#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

namespace intact::core {

/// Adds (r − zero_point)·scale; r is an element of a tensor of C's shape.
struct AddResidual {
  intact_type type = INTACT_TYPE_NONE;
  float scale = 0.0f;
  int32_t zero_point = 0;
  bool operator==(const AddResidual&) const = default;
};
/// Raises values below 0 to 0.
struct Relu {
  bool operator==(const Relu&) const = default;
};
/// Raises values below `low` to `low`, then lowers values above `high` to `high`.
struct Clamp {
  float low = 0.0f, high = 0.0f;
  bool operator==(const Clamp&) const = default;
};
using PostOp = std::variant<AddResidual, Relu, Clamp>;

/// Post-operations in their order. Copies need no memory: the reference makes one for each output.
class PostOps {
 public:
  static constexpr size_t kMost = 4;

  constexpr void Add(const PostOp& op) {
    assert(count_ < kMost);
    ops_[count_++] = op;
  }
  constexpr const PostOp* begin() const { return ops_.data(); }
  constexpr const PostOp* end() const { return ops_.data() + count_; }
  constexpr bool empty() const { return count_ == 0; }

  /// The first post-operation of a kind; nullptr if there is none.
  template <class Op>
  constexpr const Op* Find() const {
    for (const PostOp& op : *this) {
      if (const Op* found = std::get_if<Op>(&op)) return found;
    }
    return nullptr;
  }
  template <class Op>
  constexpr Op* Find() {
    return const_cast<Op*>(std::as_const(*this).template Find<Op>());
  }
  template <class Op>
  constexpr bool Has() const {
    return Find<Op>() != nullptr;
  }
  /// The list without the post-operations of some kinds.
  template <class... Ops>
  constexpr PostOps Without() const {
    PostOps others;
    for (const PostOp& op : *this) {
      if (!(std::holds_alternative<Ops>(op) || ...)) others.Add(op);
    }
    return others;
  }
  constexpr PostOps WithoutActivation() const { return Without<Relu, Clamp>(); }
  constexpr bool HasActivation() const { return Has<Relu>() || Has<Clamp>(); }
  constexpr bool operator==(const PostOps& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::array<PostOp, kMost> ops_ = {};
  size_t count_ = 0;
};

/// The fields of intact_linear_desc that describe post-operations. See ForEachField() in operation.h.
template <class Visit, class... Objects>
constexpr void ForEachPostOpField(Visit&& visit, Objects&... o) {
  visit("activation", o.activation...);
  visit("clamp_min", o.clamp_min...);
  visit("clamp_max", o.clamp_max...);
  visit("residual_type", o.residual_type...);
  visit("residual_scale", o.residual_scale...);
  visit("residual_zero_point", o.residual_zero_point...);
}

/// The list that `fields` describe: first the residual, then the activation.
template <class Fields>
constexpr PostOps PostOpsOf(const Fields& fields) {
  PostOps ops;
  if (fields.residual_type != INTACT_TYPE_NONE) {
    ops.Add(AddResidual{static_cast<intact_type>(fields.residual_type), fields.residual_scale,
                        fields.residual_zero_point});
  }
  if (fields.activation == INTACT_ACTIVATION_RELU) ops.Add(Relu{});
  if (fields.activation == INTACT_ACTIVATION_CLAMP) ops.Add(Clamp{fields.clamp_min, fields.clamp_max});
  return ops;
}

/// Sets `fields`, which have an initializer's values, to describe `ops`. Fields can describe only one order:
/// `ops` must be a list that PostOpsOf() returns.
template <class Fields>
constexpr void SetPostOps(const PostOps& ops, Fields* fields) {
  if (const AddResidual* residual = ops.Find<AddResidual>()) {
    fields->residual_type = residual->type;
    fields->residual_scale = residual->scale;
    fields->residual_zero_point = residual->zero_point;
  }
  if (ops.Has<Relu>()) fields->activation = INTACT_ACTIVATION_RELU;
  if (const Clamp* clamp = ops.Find<Clamp>()) {
    fields->activation = INTACT_ACTIVATION_CLAMP;
    fields->clamp_min = clamp->low;
    fields->clamp_max = clamp->high;
  }
}

}  // namespace intact::core
#endif  // INTACT_CORE_POST_OPS_H_
