#include "provider.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>

#include "byte_function.h"
#include "graph.h"
#include "groups.h"
#include "node.h"
#include "operators.h"
#include "options.h"
#include "rules.h"
#include "same_bytes.h"
#include "status.h"

namespace intact::onnxruntime {
namespace {

// Whether a reproducible session computes a node also where it is not computed in integers.
bool IsTakenAsFloats(Ort::ConstNode node, const Settings& settings) {
  const std::string type = node.GetOperatorType();
  return settings.is_reproducible &&
         (type == "ConvTranspose" || type == "MatMul" || type == "Gemm" || type == "Softmax" ||
          (type == "MaxPool" && node.GetOutputs().size() == 1));
}

// Whether ONNX Runtime moves nodes of an operator of ONNX to NHWC if the provider asks for it.
bool IsMovedToNhwc(std::string_view type) {
  return type == "Conv" || type == "QLinearConv" || type == "MaxPool";
}

// Whether ONNX Runtime has moved nodes to NHWC.
bool HasNhwc(const std::vector<Ort::ConstNode>& nodes) {
  return std::ranges::any_of(nodes,
                             [](const Ort::ConstNode& node) { return node.GetDomain() == kNhwcDomain; });
}

// Whether a node is one that was taken when ONNX Runtime asked before.
bool IsFused(Ort::ConstNode node) { return node.GetOperatorType().starts_with(kProviderName); }

// Whether ONNX Runtime may replace a node by the nodes of a function: it has no operators in such a domain, and none for Mish.
bool MayBeFunction(Ort::ConstNode node) {
  const std::string domain = DomainOf(node);
  if (domain.empty()) return node.GetOperatorType() == "Mish";
  return !domain.starts_with("ai.onnx") && !domain.starts_with("com.microsoft") &&
         !domain.starts_with("org.pytorch");
}

// The identity of a graph among the graphs of a model.
std::string IdOf(Ort::ConstGraph graph) {
  std::string id = graph.GetName();
  for (const std::string& output : NamesOf(graph.GetOutputs())) id += "\n" + output;
  return id;
}

Step StepOf(const Group& group, std::unique_ptr<Layer> layer) {
  std::vector<Ort::ConstValueInfo> outputs = group.more_outputs;
  outputs.insert(outputs.begin(), group.output);
  Step step{std::move(layer), NamesOf(group.inputs), NamesOf(outputs), {}};
  for (const auto& output : outputs)
    step.types.push_back(output == nullptr ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED : ElementTypeOf(output));
  return step;
}

}  // namespace

// Layers as a session runs them.
struct Compiled : OrtNodeComputeInfo {
  Compiled(const Provider& owner, Chain computed);

  const Provider& provider;
  const Chain chain;
};

Compiled::Compiled(const Provider& owner, Chain computed)
    : OrtNodeComputeInfo{}, provider(owner), chain(std::move(computed)) {
  ort_version_supported = ORT_API_VERSION;
  OrtNodeComputeInfo::CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*,
                                       void** state) -> OrtStatus* {
    *state = self;
    return nullptr;
  };
  OrtNodeComputeInfo::ReleaseState = [](OrtNodeComputeInfo*, void*) {};
  OrtNodeComputeInfo::Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) {
    return Guard([&] {
      const auto& compiled = *static_cast<Compiled*>(self);
      compiled.chain.Compute(context, compiled.provider.settings(), compiled.provider.memory());
    });
  };
}

Provider::Provider(Settings settings, std::string report_id)
    : OrtEp{}, settings_(settings), report_id_(std::move(report_id)), asks_for_nhwc_(settings.is_nhwc) {
  ort_version_supported = ORT_API_VERSION;
  OrtEp::GetName = [](const OrtEp*) noexcept { return kProviderName; };
  OrtEp::GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) noexcept {
    return Guard([&] { static_cast<Provider*>(self)->TakeNodes(Ort::ConstGraph(graph), info); });
  };
  OrtEp::Compile = [](OrtEp* self, const OrtGraph**, const OrtNode** fused, size_t count,
                      OrtNodeComputeInfo** compiled, OrtNode**) noexcept {
    return Guard([&] {
      for (size_t i = 0; i < count; ++i)
        compiled[i] = static_cast<Provider*>(self)->CompileChain(Ort::ConstNode(fused[i]));
    });
  };
  // ONNX Runtime calls it again after GetCapability(). For NHWC it then moves nodes and calls GetCapability() once more.
  OrtEp::GetPreferredDataLayout = [](OrtEp* self, OrtEpDataLayout* layout) noexcept -> OrtStatus* {
    *layout = static_cast<Provider*>(self)->asks_for_nhwc_ ? OrtEpDataLayout_NHWC : OrtEpDataLayout_NCHW;
    return nullptr;
  };
  // Called for operators of nodes that were taken.
  OrtEp::ShouldConvertDataLayoutForOp = [](OrtEp* self, const char* domain, const char* type, OrtEpDataLayout,
                                           int* should_convert) noexcept -> OrtStatus* {
    *should_convert =
        !static_cast<Provider*>(self)->needs_nchw_ && *domain == '\0' && IsMovedToNhwc(type) ? 1 : 0;
    return nullptr;
  };
  OrtEp::OnRunStart = [](OrtEp* self, const OrtRunOptions*) noexcept {
    return Guard([&] {
      for (const auto& [graph, refusal] : static_cast<Provider*>(self)->deferred_)
        throw std::invalid_argument(refusal);
    });
  };
  OrtEp::ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** compiled, size_t count) noexcept {
    for (size_t i = 0; i < count; ++i) delete static_cast<Compiled*>(compiled[i]);
  };
}

// Nodes that intact could compute, but that stay with ONNX Runtime so that it computes a neighbor as without intact: in floats,
// because integers would be wrong. By the id of the node, why: HarmOfIntegers() of the neighbor.
// `kept` receives layers, which keep their plans.
std::map<size_t, std::string> Provider::NodesLeft(const std::vector<Ort::ConstNode>& nodes,
                                                  std::vector<std::unique_ptr<Layer>>* kept) const {
  std::map<size_t, std::string> left;
  const auto may_change = [](const auto& node) {
    return !NodesAcrossMoves(node).empty() && !HarmOfIntegers(node).empty();
  };
  if (std::ranges::none_of(nodes, may_change)) return left;
  std::set<size_t> taken;           // ids of nodes that intact takes
  std::map<size_t, size_t> takers;  // of each QuantizeLinear and DequantizeLinear of their groups
  for (const auto& node : nodes) try {
      const Group group = GroupOf(node);
      kept->push_back(MakeLayer(group, settings_));
      taken.insert(node.GetId());
      for (const auto& each : group.nodes) takers[each.GetId()] = node.GetId();
    } catch (const std::exception&) {
      continue;
    }
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (const auto& node : nodes) {
      if (taken.contains(node.GetId()) || !may_change(node)) continue;
      std::vector<Ort::ConstNode> hidden = NodesAcrossMoves(node);
      std::erase_if(hidden, [&](const auto& across) {
        const auto taker = takers.find(across.GetId());
        return taker == takers.end() || !taken.contains(taker->second);
      });
      // Shows the tensors one by one until ONNX Runtime computes the node as without intact.
      while (!hidden.empty() && IsOfIntegers(node, hidden) != IsOfIntegers(node, {})) {
        const size_t taker = takers.at(hidden.back().GetId());
        hidden.pop_back();
        taken.erase(taker);
        left.emplace(
            taker, "neighbor: is a " + node.GetOperatorType() +
                       " that ONNX Runtime computes in floats only if it moves the int8 tensor between both "
                       "nodes to uint8; in integers " +
                       HarmOfIntegers(node));
        is_new = true;
      }
    }
  }
  return left;
}

// Finds what the bytes of each node depend on. Returns whether a reproducible session cannot be had.
bool Provider::RefusesNodes(Ort::ConstGraph graph, std::map<size_t, Fate>* fates,
                            OrtEpGraphSupportInfo* info) {
  const auto nodes = graph.GetNodes();
  const bool is_asked_again = deferred_.erase(IdOf(graph)) > 0;
  bool are_functions = true;
  std::optional<Ort::ConstNode> first;
  for (const auto& node : nodes) {
    if (IsFused(node)) continue;
    Fate& fate = fates->at(node.GetId());
    fate.depends = !fate.is_taken ? WhyBytesMayDiffer(node)
                   : settings_.mode != INTACT_EXACT
                       ? "the mode is saturating, so sums clamp on CPUs without VNNI"
                       : "";
    if (fate.depends.empty()) continue;
    if (!first) first = node;
    are_functions &= MayBeFunction(node);
  }
  refusal_.clear();
  if (!settings_.is_reproducible || !first) return false;
  refusal_ = DependentNodes(nodes, *fates);
  needs_nchw_ =
      true;  // ONNX Runtime would move nodes that were taken to NHWC, and ask again instead of compiling them
  // ONNX Runtime goes on when GetCapability() fails. It does not when a node that was taken cannot be compiled. It also asks, and
  // compiles nothing, before it replaces functions by their nodes: a function must not be taken, for it would stay.
  if (!taken_.empty()) return true;
  if (are_functions && !is_asked_again) {
    deferred_[IdOf(graph)] = refusal_;
    return true;
  }
  const OrtNode* const node = *first;
  const OrtNodeFusionOptions options{ORT_API_VERSION, true};
  Ort::ThrowOnError(Ort::GetEpApi().EpGraphSupportInfo_AddNodesToFuse(info, &node, 1, &options));
  return true;
}

// Whether ONNX Runtime shall move nodes to NHWC. It leaves two transpositions or more. So it shall not if chains need at most two
// themselves, and no byte changes. `depends_on_moves`: whether ONNX Runtime moves s8 tensors to u8. Transpositions change which
// tensors it moves.
bool Provider::WantsNhwc(const Flow& flow, bool depends_on_moves) const {
  if (!settings_.is_nhwc) return false;
  if (settings_.is_reproducible || settings_.is_like_avx2 || depends_on_moves) return true;
  const auto is_any = [&](ElementOrder order) {
    return std::ranges::any_of(taken_, [&](const Step& step) { return step.layer->GetOrder() == order; });
  };
  return is_any(ElementOrder::kEither) && (is_any(ElementOrder::kBroadcast) || flow.Transpositions() > 2);
}

void Provider::TakeNodes(Ort::ConstGraph graph, OrtEpGraphSupportInfo* info) {
  // Keeps the plans that ONNX Runtime asked for before: layers that it asks for again share them.
  const std::vector<Step> taken_before = std::exchange(taken_, {});
  const auto nodes = graph.GetNodes();
  std::map<size_t, Fate> fates;
  std::map<size_t, size_t> takers;  // of the id of a node that was taken: which of taken_
  std::vector<std::vector<const OrtNode*>> taken_nodes;  // of each of taken_
  const auto take = [&](const Group& group) {
    std::unique_ptr<Layer> layer = MakeLayer(group, settings_);
    for (const auto& each : group.nodes) {
      fates[each.GetId()] = {true, layer->Kernel(), group.note, NamesOf({group.output}).front()};
      takers[each.GetId()] = taken_.size();
    }
    taken_nodes.emplace_back(group.nodes.begin(), group.nodes.end());
    taken_.push_back(StepOf(group, std::move(layer)));
  };
  // Layers that decide where functions of bytes end. They keep their plans until the nodes are taken below.
  std::vector<std::unique_ptr<Layer>> kept;
  // ONNX Runtime asks once more when it has moved convolutions to NHWC. The graph then has its transpositions.
  const bool is_nhwc = HasNhwc(nodes);
  const auto left = is_nhwc ? std::map<size_t, std::string>() : NodesLeft(nodes, &kept);
  needs_nchw_ = !left.empty();  // transpositions would hide tensors that nodes share with their neighbors
  const auto is_taken = [&](Ort::ConstNode node) {
    if (left.contains(node.GetId())) return false;
    try {
      kept.push_back(MakeLayer(GroupOf(node), settings_));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
  std::set<size_t> in_functions;  // ids of nodes
  for (const Group& function : FindByteFunctions(nodes, is_taken)) try {
      take(function);
      for (const auto& node : function.nodes) in_functions.insert(node.GetId());
    } catch (const std::exception&) {
      continue;  // its nodes are taken one by one
    }
  bool depends_on_moves = !left.empty();
  for (const Ort::ConstNode& node : nodes) try {
      if (const auto found = left.find(node.GetId()); found != left.end()) throw Refusal(found->second);
      // A convolution that was taken once is taken again; without `like` its bytes do not depend on what is moved.
      if (DependsOnMoves(node)) {
        depends_on_moves = true;
        needs_nchw_ |= settings_.is_like_avx2 || node.GetOperatorType() != "Conv";
      }
      if (in_functions.contains(node.GetId())) continue;
      // Exceptions take long, and most nodes of a quantized model are QuantizeLinear and DequantizeLinear.
      if (const Group group = GroupOf(node); HasOperator(group)) {
        take(group);
      } else {
        fates.try_emplace(node.GetId(), Fate{false, kNoOperator});  // unless a group has the node
      }
    } catch (const std::exception& error) {
      Fate fate{false, error.what()};
      if (IsTakenAsFloats(node, settings_)) try {
          take(NodeAlone(node));
          continue;
        } catch (const std::exception& of_floats) {
          fate.detail = of_floats.what();
        }
      fates.try_emplace(node.GetId(), std::move(fate));  // unless a group has the node
    }
  const Flow flow(nodes, takers, taken_);
  chains_ = flow.Chains();
  for (const auto& chain : chains_) {
    std::vector<const OrtNode*> fused;
    for (const size_t step : chain)
      fused.insert(fused.end(), taken_nodes[step].begin(), taken_nodes[step].end());
    const OrtNodeFusionOptions options{ORT_API_VERSION, true};  // the plans have the constants
    Ort::ThrowOnError(
        Ort::GetEpApi().EpGraphSupportInfo_AddNodesToFuse(info, fused.data(), fused.size(), &options));
  }
  const bool refuses_nodes = RefusesNodes(graph, &fates, info);
  asks_for_nhwc_ = is_nhwc ? settings_.is_nhwc : WantsNhwc(flow, depends_on_moves);
  if (refuses_nodes) return;
  Report(graph, nodes, fates);
}

// Describes the nodes in the report of the session.
void Provider::Report(Ort::ConstGraph graph, const std::vector<Ort::ConstNode>& nodes,
                      const std::map<size_t, Fate>& fates) {
  const auto [report, is_new] = reports_.try_emplace(graph.GetName());
  if (!is_new && HasNhwc(nodes)) return;
  // It also asks once more if it has replaced functions of ONNX by their nodes. Then the nodes that were taken
  // before are fused nodes.
  GraphReport& part = report->second;
  if (std::ranges::none_of(nodes, IsFused)) part.taken.clear();
  part.all = part.taken;
  for (const auto& node : nodes) {
    if (IsFused(node)) continue;
    const Fate& fate = fates.at(node.GetId());
    part.all.push_back({node.GetName(), node.GetOperatorType(), node.GetDomain(), fate});
    if (fate.is_taken) part.taken.push_back(part.all.back());
  }
  if (report_id_.empty()) return;
  std::vector<ReportedNode> all;
  for (const auto& [name, each] : reports_) all.insert(all.end(), each.all.begin(), each.all.end());
  Reports::Set(report_id_, this, std::move(all));
}

Compiled* Provider::CompileChain(Ort::ConstNode fused) {
  if (!refusal_.empty()) throw std::invalid_argument(refusal_);
  const auto inputs = NamesOf(fused.GetInputs()), outputs = NamesOf(fused.GetOutputs());
  const auto makes_output = [&](size_t step) {
    return taken_[step].layer != nullptr &&
           std::ranges::find(taken_[step].outputs, outputs.at(0)) != taken_[step].outputs.end();
  };
  const auto found = std::ranges::find_if(
      chains_, [&](const auto& chain) { return std::ranges::any_of(chain, makes_output); });
  if (found == chains_.end())
    throw std::runtime_error("output " + outputs[0] + ": is of no node that was taken");
  std::vector<Step> steps;
  for (const size_t step : *found) steps.push_back(std::move(taken_[step]));
  return new Compiled(*this, Chain(std::move(steps), inputs, outputs));
}

}  // namespace intact::onnxruntime
