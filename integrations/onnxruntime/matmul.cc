#include "matmul.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "items.h"
#include "plans.h"

namespace intact::onnxruntime {
namespace {

// Products of matrices. A is [..., K]; leading extents make rows.
class MatMul : public Layer {
 public:
  // `b`: the weights; `transposed`: N×K. `a_transposed`: A is K×M.
  MatMul(const Constant& b, bool transposed, Linear linear, std::optional<FromRun> from_run = {},
         bool a_transposed = false)
      : from_run_(from_run), a_transposed_(a_transposed) {
    if (b.shape.size() != 2)
      throw Refusal("B: has " + std::to_string(b.shape.size()) + " dimensions; expected 2");
    intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
    desc.k = k_ = b.shape[transposed ? 1 : 0];
    desc.n = n_ = b.shape[transposed ? 0 : 1];
    if (transposed) desc.b_stride_k = 1, desc.b_stride_n = desc.k;
    plan_ = MakeGemmPlan(desc, linear, b.data);
  }

  void Compute(Run& run) const override {
    const auto a = run.Input(0);
    Shape shape = a.GetTensorTypeAndShapeInfo().GetShape();
    if (a_transposed_ && shape.size() == 2) std::swap(shape[0], shape[1]);
    CheckRows(shape, k_);
    shape.back() = n_;
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = CountOf(shape) / n_;
    args.a = a.GetTensorRawData();
    args.a_transposed = a_transposed_;
    args.c = run.Output(shape);
    if (args.m == 0) return;
    FromRun::Values values;
    if (from_run_) from_run_->Read(run, values, args);
    run.Compute(*plan_, args, {args.m, n_, k_});
  }

  std::string Kernel() const override { return KernelOf(*plan_); }

 private:
  GemmPlan plan_;
  int64_t n_ = 0, k_ = 0;
  std::optional<FromRun> from_run_;
  bool a_transposed_;
};

// Products of matrices that each run gives: the items of [..., M, K] and [..., K, N], with broadcasting.
class MatMulOfRun : public Layer {
 public:
  // `b_input`: where B is among the operator's inputs.
  MatMulOfRun(const Node& node, size_t b_input, Linear linear, std::optional<FromRun> from_run = {})
      : b_input_(b_input), linear_(std::move(linear)), from_run_(from_run) {
    for (const size_t input : {size_t{0}, b_input})
      if (const size_t dimensions = node.ShapeOf(input).size(); dimensions < 2)
        throw Refusal(std::string(input == 0 ? "A" : "B") + ": has " + std::to_string(dimensions) +
                      " dimensions; expected at least 2, known before the run");
    linear_.desc.overflow = INTACT_OVERFLOW_WRAPS;  // the depth is not known yet
    kernel_ = KernelOf(*PlanOf(64, 64));
  }

  void Compute(Run& run) const override {
    const auto a = run.Input(0), b = run.Input(b_input_);
    const Shape a_shape = a.GetTensorTypeAndShapeInfo().GetShape();
    const Shape b_shape = b.GetTensorTypeAndShapeInfo().GetShape();
    for (const auto& [name, shape] : {std::pair{"A", &a_shape}, {"B", &b_shape}})
      if (shape->size() < 2)
        throw std::invalid_argument(std::string(name) + ": has " + std::to_string(shape->size()) +
                                    " dimensions; expected at least 2");
    const int64_t m = a_shape.end()[-2], k = a_shape.back(), n = b_shape.back();
    CheckDepth(b_shape.end()[-2], k);
    Shape shape = BroadcastItems(a_shape, b_shape);
    const std::span<const int64_t> items(shape);
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.batch = CountOf(items);
    const auto a_items = PlacesOfItems(a.GetTensorRawData(), m * k, a_shape, items);
    const auto b_items = PlacesOfItems(b.GetTensorRawData(), k * n, b_shape, items);
    shape.insert(shape.end(), {m, n});
    args.c = run.Output(shape);
    if (CountOf(shape) == 0) return;
    if (k == 0) throw std::invalid_argument("A: has rows of 0 elements; expected at least 1");
    args.m = m;
    args.a_items = a_items.data();
    args.b_items = b_items.data();
    FromRun::Values values;
    if (from_run_) from_run_->Read(run, values, args);
    run.Compute(*PlanOf(k, n), args, {m, args.batch * n, k});
  }

  std::string Kernel() const override { return kernel_; }

 private:
  static constexpr size_t kMostPlans = 64;

  // The plan of products of this depth and width. The plans used last are kept.
  GemmPlan PlanOf(int64_t k, int64_t n) const {
    const std::lock_guard lock(mutex_);
    auto found = std::ranges::find_if(plans_, [&](const Plan& plan) { return plan.k == k && plan.n == n; });
    if (found == plans_.end()) {
      intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
      desc.k = k;
      desc.n = n;
      desc.runtime_b = 1;
      plans_.push_front({k, n, MakeGemmPlan(desc, linear_, nullptr)});
      if (plans_.size() > kMostPlans) plans_.pop_back();
    } else {
      plans_.splice(plans_.begin(), plans_, found);
    }
    return plans_.front().plan;
  }

  struct Plan {
    int64_t k, n;
    GemmPlan plan;
  };
  const size_t b_input_;
  mutable Linear linear_;
  const std::optional<FromRun> from_run_;
  mutable std::mutex mutex_;
  mutable std::list<Plan> plans_;  // the one used last is first
  std::string kernel_;
};

// The number of columns with own scales and zero points; 1 for a runtime B.
int64_t ColumnsOf(const Node& node, size_t b_input, intact_type b) {
  return node.IsFromRun(b_input) ? 1 : node.Weights(b_input, b).shape.back();
}

// The depth of a product with B; 2, as an example of several depths, if the model does not state it.
int64_t DepthOf(const Node& node, size_t b_input) {
  const Shape shape = node.ShapeOf(b_input);
  return shape.size() > 1 && shape[shape.size() - 2] > 0 ? shape[shape.size() - 2] : 2;
}

std::unique_ptr<Layer> MakeProduct(const Node& node, size_t b_input, Linear linear,
                                   std::optional<FromRun> from_run = {}) {
  if (node.IsFromRun(b_input))
    return std::make_unique<MatMulOfRun>(node, b_input, std::move(linear), from_run);
  const Constant weights = node.Weights(b_input, static_cast<intact_type>(linear.desc.b_type));
  return std::make_unique<MatMul>(weights, false, std::move(linear), from_run);
}

}  // namespace

std::unique_ptr<Layer> MakeMatMulInteger(const Node& node, const Context& context) {
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type b = node.Type(1, {INTACT_U8, INTACT_S8});
  Linear linear(context, {"MatMulInteger", DepthOf(node, 1)}, a, b, INTACT_S32);
  linear.b_zero_points = node.ZeroPoints(3, b, ColumnsOf(node, 1, b));
  const auto from_run = SetQuantization(node, 2, {}, {}, linear);
  return MakeProduct(node, 1, std::move(linear), from_run);
}

std::unique_ptr<Layer> MakeQLinearMatMul(const Node& node, const Context& context) {
  const intact_type b = node.Type(3, {INTACT_U8, INTACT_S8});
  return MakeProduct(node, 3,
                     QLinear(node, context, {"QLinearMatMul", DepthOf(node, 3)}, b, ColumnsOf(node, 3, b)));
}

std::unique_ptr<Layer> MakeQGemm(const Node& node, const Context& context) {
  const bool transposed = node.Integer("transB", 0) != 0;
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type b = node.Type(3, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(3, b);
  const int64_t columns = transposed ? weights.shape.front() : weights.shape.back();
  const Product product = {"QGemm", transposed ? weights.shape.back() : weights.shape.front()};
  Linear linear(context, product, a, b, node.OutputType({INTACT_F32, INTACT_U8, INTACT_S8}));
  linear.desc.a_zero_point = node.ZeroPoint(2, a);
  linear.b_zero_points = node.ZeroPoints(5, b, columns);
  std::optional<float> y_scale;
  if (linear.desc.c_type != INTACT_F32) {
    y_scale = node.Scale(7);
    linear.desc.c_zero_point = node.ZeroPoint(8, static_cast<intact_type>(linear.desc.c_type));
  }
  SetBias(node, context, 6, 9, columns, y_scale.value_or(1), linear);
  linear.scales = OutputScales(node.Float("alpha", 1) * node.Scale(1), node.Scales(4, columns), y_scale);
  return std::make_unique<MatMul>(weights, transposed, std::move(linear), std::nullopt,
                                  node.Integer("transA", 0) != 0);
}

std::unique_ptr<Layer> MakeDynamicQuantizeMatMul(const Node& node, const Context& context) {
  node.Type(0, {INTACT_F32});
  const intact_type b = node.Type(1, {INTACT_U8, INTACT_S8});
  const Constant weights = node.Weights(1, b);
  const int64_t columns = weights.shape.back();
  Linear linear(context, {"DynamicQuantizeMatMul", DepthOf(node, 1)}, INTACT_U8, b, INTACT_F32);
  linear.SetDynamicQuantization(node.Scales(2, columns));
  linear.b_zero_points = node.ZeroPoints(3, b, columns);
  linear.bias_f32 = Bias<float>(node, 4, INTACT_F32, columns);
  return std::make_unique<MatMul>(weights, false, std::move(linear));
}

std::unique_ptr<Layer> MakeMatMulIntegerToFloat(const Node& node, const Context& context) {
  const intact_type a = node.Type(0, {INTACT_U8, INTACT_S8});
  const intact_type b = node.Type(1, {INTACT_U8, INTACT_S8});
  if (node.IsFromRun(1) && node.Has(6))
    throw Refusal("bias: is given, and each run gives B; expected one of them");
  const int64_t columns = ColumnsOf(node, 1, b);
  Linear linear(context, {"MatMulIntegerToFloat", DepthOf(node, 1)}, a, b, INTACT_F32);
  linear.b_zero_points = node.ZeroPoints(5, b, columns);
  linear.bias_f32 = Bias<float>(node, 6, INTACT_F32, columns);
  const auto from_run = SetQuantization(node, 4, 2, node.Scales(3, columns), linear);
  return MakeProduct(node, 1, std::move(linear), from_run);
}

}  // namespace intact::onnxruntime
