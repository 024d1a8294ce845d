// The execution provider that ONNX Runtime loads: a factory, a provider for each session, its compiled nodes.
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "byte_function.h"
#include "graph.h"
#include "node.h"
#include "operators.h"
#include "rules.h"
#include "same_bytes.h"

namespace intact::onnxruntime {
namespace {

constexpr char kName[] = "IntactExecutionProvider";
constexpr char kLikeAvx2[] = "onnxruntime:avx2";  // the value of the option `like`

// Calls body() for a function of ONNX Runtime's C interface: what it throws becomes a status. It is never
// ORT_EP_FAIL, behind which onnxruntime.InferenceSession would go on with other providers.
template <class Body>
OrtStatus* Guard(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Ort::Exception& error) {
    return Ort::GetApi().CreateStatus(error.GetOrtErrorCode(), error.what());
  } catch (const std::invalid_argument& error) {
    return Ort::GetApi().CreateStatus(ORT_INVALID_ARGUMENT, (std::string("intact: ") + error.what()).c_str());
  } catch (const std::exception& error) {
    return Ort::GetApi().CreateStatus(ORT_RUNTIME_EXCEPTION,
                                      (std::string("intact: ") + error.what()).c_str());
  }
}

// A JSON string.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= ' ') quoted += c;
  }
  return quoted + '"';
}

// What became of a node: the kernel that computes it, or why none does.
struct Fate {
  bool is_taken;
  std::string detail;
  std::string note = {};    // see Group
  std::string output = {};  // of the group that has the node: a name
  // Why its bytes may depend on the CPU or on the number of threads; "": they do not.
  std::string depends = {};
};

std::string JsonOf(Ort::ConstNode node, const Fate& fate) {
  return "{\"name\": " + Quoted(node.GetName()) + ", \"op\": " + Quoted(node.GetOperatorType()) +
         ", \"domain\": " + Quoted(node.GetDomain()) +
         ", \"taken\": " + (fate.is_taken ? "true, \"kernel\": " : "false, \"reason\": ") +
         Quoted(fate.detail) + ", \"same_bytes\": " +
         (fate.depends.empty() ? "true" : "false, \"depends\": " + Quoted(fate.depends)) +
         (fate.output.empty() ? "" : ", \"output\": " + Quoted(fate.output)) +
         (fate.note.empty() ? "" : ", \"note\": " + Quoted(fate.note)) + "}";
}

// Reports by the option `report`, which whoever wants to read a report gives its session. Of several sessions
// with one value it is the last one's.
class Reports {
 public:
  static void Set(const std::string& id, const void* session, std::string json) {
    const std::lock_guard lock(mutex_);
    reports_[id] = {session, std::move(json)};
  }
  static std::string Get(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = reports_.find(id);
    return found == reports_.end() ? "" : found->second.second;
  }
  static void Drop(const std::string& id, const void* session) {
    const std::lock_guard lock(mutex_);
    const auto found = reports_.find(id);
    if (found != reports_.end() && found->second.first == session) reports_.erase(found);
  }

 private:
  static inline std::mutex mutex_;
  static inline std::map<std::string, std::pair<const void*, std::string>> reports_;
};

// The nodes whose bytes may depend on the CPU or on the number of threads, in words; "" if there are none.
std::string DependentNodes(const std::vector<Ort::ConstNode>& nodes, const std::map<size_t, Fate>& fates) {
  constexpr int kMostNamed = 5;
  int count = 0;
  std::string named;
  for (const auto& node : nodes) {
    const auto fate = fates.find(node.GetId());
    if (fate == fates.end() || fate->second.depends.empty() || ++count > kMostNamed) continue;
    named += "; node '" + node.GetName() + "' (" + node.GetOperatorType() + "): " + fate->second.depends +
             ", and intact does not take it: " + fate->second.detail;
  }
  if (count == 0) return "";
  return "reproducible: " + std::to_string(count) +
         (count == 1 ? " node may have other bytes on another machine"
                     : " nodes may have other bytes on another machine") +
         named + (count > kMostNamed ? "; ..." : "");
}

// Whether a reproducible session computes a node also where it is not computed in integers.
bool IsTakenAsFloats(Ort::ConstNode node, const Settings& settings) {
  const std::string type = node.GetOperatorType();
  return settings.is_reproducible &&
         (type == "ConvTranspose" || type == "MatMul" || type == "Gemm" || type == "Softmax" ||
          (type == "MaxPool" && node.GetOutputs().size() == 1));
}

int32_t AvailableThreads() {
  cpu_set_t processors;
  return sched_getaffinity(0, sizeof processors, &processors) == 0 ? CPU_COUNT(&processors) : 1;
}

[[noreturn]] void RefuseOption(const std::string& option, const std::string& value,
                               const std::string& expected) {
  throw std::invalid_argument(option + ": is '" + value + "'; expected " + expected);
}

Settings ReadSettings(const std::map<std::string, std::string>& options) {
  Settings settings;
  settings.threads = AvailableThreads();
  for (const auto& [option, value] : options) {
    if (value.empty()) continue;
    if (option == "mode") {
      if (value != "exact" && value != "saturating") RefuseOption(option, value, "exact or saturating");
      settings.mode = value == "exact" ? INTACT_EXACT : INTACT_SATURATING;
    } else if (option == "max_isa") {
      int32_t isa = INTACT_ISA_ANY;
      const char* name = intact_isa_name(isa);
      while (name != nullptr && value != name) name = intact_isa_name(++isa);
      if (name == nullptr) RefuseOption(option, value, "a name of intact_isa_name(), such as avx2");
      settings.max_isa = isa;
    } else if (option == "reproducible") {
      if (value != "0" && value != "1") RefuseOption(option, value, "0 or 1");
      settings.is_reproducible = value == "1";
    } else if (option == "quantize_activations") {
      if (value != "0" && value != "1") RefuseOption(option, value, "0 or 1");
      settings.quantizes_activations = value == "1";
    } else if (option == "like") {
      if (value != kLikeAvx2) RefuseOption(option, value, kLikeAvx2);
      settings.is_like_avx2 = true;
    } else if (option == "threads") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), settings.threads);
      if (error != std::errc() || *end != '\0' || settings.threads < 1)
        RefuseOption(option, value, "a positive number");
    }
  }
  if (settings.is_reproducible && settings.mode != INTACT_EXACT)
    throw std::invalid_argument("mode: is 'saturating' with reproducible; expected exact");
  if (settings.is_like_avx2) {
    if (settings.mode != INTACT_EXACT)
      throw std::invalid_argument(
          "mode: is 'saturating' with like; expected exact, for like says what clamps");
    if (!HasAvx2(settings))
      throw std::invalid_argument(
          "like: is '" + std::string(kLikeAvx2) +
          "' without AVX2; expected a CPU and caps (max_isa, INTACT_MAX_ISA) that have it");
  }
  return settings;
}

// Where `names` are in `given`; −1: nowhere.
std::vector<int> PlacesOf(const std::vector<std::string>& names, const std::vector<std::string>& given) {
  std::vector<int> places;
  places.reserve(names.size());
  for (const std::string& name : names) {
    const auto place = name.empty() ? given.end() : std::ranges::find(given, name);
    places.push_back(place == given.end() ? -1 : static_cast<int>(place - given.begin()));
  }
  return places;
}

// Whether a node is one that was taken when ONNX Runtime asked before.
bool IsFused(Ort::ConstNode node) { return node.GetOperatorType().starts_with(kName); }

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

class Provider;

// A group of nodes as a session runs it.
struct Compiled : OrtNodeComputeInfo {
  Compiled(const Provider& owner, std::unique_ptr<Layer> computed, Places places_of_run);

  const Provider& provider;
  const std::unique_ptr<Layer> layer;
  const Places places;
};

class Provider : public OrtEp {
 public:
  Provider(Settings settings, std::string report_id)
      : OrtEp{}, settings_(settings), report_id_(std::move(report_id)) {
    ort_version_supported = ORT_API_VERSION;
    OrtEp::GetName = [](const OrtEp*) noexcept { return kName; };
    OrtEp::GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) noexcept {
      return Guard([&] { static_cast<Provider*>(self)->TakeNodes(Ort::ConstGraph(graph), info); });
    };
    OrtEp::Compile = [](OrtEp* self, const OrtGraph**, const OrtNode** fused, size_t count,
                        OrtNodeComputeInfo** compiled, OrtNode**) noexcept {
      return Guard([&] {
        for (size_t i = 0; i < count; ++i)
          compiled[i] = static_cast<Provider*>(self)->CompileGroup(Ort::ConstNode(fused[i]));
      });
    };
    OrtEp::GetPreferredDataLayout = [](OrtEp* self, OrtEpDataLayout* layout) noexcept -> OrtStatus* {
      *layout = static_cast<Provider*>(self)->settings_.is_nhwc ? OrtEpDataLayout_NHWC : OrtEpDataLayout_NCHW;
      return nullptr;
    };
    // Called for operators of nodes that were taken.
    OrtEp::ShouldConvertDataLayoutForOp = [](OrtEp* self, const char* domain, const char* type,
                                             OrtEpDataLayout, int* should_convert) noexcept -> OrtStatus* {
      const std::string_view name = type;
      *should_convert = !static_cast<Provider*>(self)->needs_nchw_ && *domain == '\0' &&
                                (name == "Conv" || name == "QLinearConv" || name == "MaxPool")
                            ? 1
                            : 0;
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
  ~Provider() { Reports::Drop(report_id_, this); }
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;

  const Settings& settings() const { return settings_; }
  const OrtMemoryInfo* memory() const { return memory_; }

 private:
  void TakeNodes(Ort::ConstGraph graph, OrtEpGraphSupportInfo* info);
  bool RefusesNodes(Ort::ConstGraph graph, std::map<size_t, Fate>* fates, OrtEpGraphSupportInfo* info);
  Compiled* CompileGroup(Ort::ConstNode fused);
  std::map<size_t, std::string> NodesLeft(const std::vector<Ort::ConstNode>& nodes,
                                          std::vector<std::unique_ptr<Layer>>* kept) const;

  const Settings settings_;
  const std::string report_id_;
  const Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  struct GraphReport {
    std::string all, taken;  // JSON of all nodes, and of the nodes that were taken
  };
  std::map<std::string, GraphReport> reports_;  // by the name of the graph: a model may have subgraphs
  // Of the graph that the session asked about last: it compiles them next.
  struct Taken {
    std::vector<std::string> inputs, outputs;  // names; "": not given
    std::unique_ptr<Layer> layer;
  };
  std::vector<Taken> taken_;
  std::string refusal_;  // why a reproducible session cannot be had; "" if it can
  // Refusals of graphs without a taken node, by the graph: ONNX Runtime may ask again when it has replaced functions.
  std::map<std::string, std::string> deferred_;
  // Whether the graph's bytes depend on which tensors ONNX Runtime would move to u8. Transpositions for NHWC come between
  // QuantizeLinear and DequantizeLinear, and would hide these tensors.
  bool needs_nchw_ = false;
};

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

void Provider::TakeNodes(Ort::ConstGraph graph, OrtEpGraphSupportInfo* info) {
  // Keeps the plans that ONNX Runtime asked for before: layers that it asks for again share them.
  const std::vector<Taken> taken_before = std::exchange(taken_, {});
  const auto nodes = graph.GetNodes();
  std::map<size_t, Fate> fates;
  const auto take = [&](const Group& group) {
    std::unique_ptr<Layer> layer = MakeLayer(group, settings_);
    for (const auto& each : group.nodes)
      fates[each.GetId()] = {true, layer->Kernel(), group.note, NamesOf({group.output}).front()};
    Taken& taken = taken_.emplace_back();
    taken.inputs = NamesOf(group.inputs);
    taken.outputs = NamesOf(group.more_outputs);
    taken.outputs.insert(taken.outputs.begin(), NamesOf({group.output}).front());
    taken.layer = std::move(layer);
    const std::vector<const OrtNode*> fused(group.nodes.begin(), group.nodes.end());
    const OrtNodeFusionOptions options{ORT_API_VERSION, true};  // the plan has the constants
    Ort::ThrowOnError(
        Ort::GetEpApi().EpGraphSupportInfo_AddNodesToFuse(info, fused.data(), fused.size(), &options));
  };
  // Layers that decide where functions of bytes end. They keep their plans until the nodes are taken below.
  std::vector<std::unique_ptr<Layer>> kept;
  // ONNX Runtime asks once more when it has moved convolutions to NHWC. The graph then has its transpositions.
  const bool is_nhwc =
      std::ranges::any_of(nodes, [](const Ort::ConstNode& node) { return node.GetDomain() == kNhwcDomain; });
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
  for (const Ort::ConstNode& node : nodes) try {
      if (const auto found = left.find(node.GetId()); found != left.end()) throw Refusal(found->second);
      // A convolution that was taken once is taken again; without `like` its bytes do not depend on what is moved.
      needs_nchw_ |= (settings_.is_like_avx2 || node.GetOperatorType() != "Conv") && DependsOnMoves(node);
      if (!in_functions.contains(node.GetId())) take(GroupOf(node));
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
  if (RefusesNodes(graph, &fates, info)) return;
  const auto [report, is_new] = reports_.try_emplace(graph.GetName());
  if (is_nhwc && !is_new) return;
  // It also asks once more if it has replaced functions of ONNX by their nodes. Then the nodes that were taken
  // before are fused nodes.
  const auto add = [](const std::string& line, std::string* lines) {
    *lines += (lines->empty() ? "" : ",\n ") + line;
  };
  GraphReport& part = report->second;
  if (std::ranges::none_of(nodes, IsFused)) part.taken.clear();
  part.all = part.taken;
  for (const auto& node : nodes) {
    if (IsFused(node)) continue;
    const Fate& fate = fates.at(node.GetId());
    add(JsonOf(node, fate), &part.all);
    if (fate.is_taken) add(JsonOf(node, fate), &part.taken);
  }
  std::string all;
  for (const auto& [name, each] : reports_)
    if (!each.all.empty()) add(each.all, &all);
  if (!report_id_.empty()) Reports::Set(report_id_, this, "[" + all + "]");
}

Compiled* Provider::CompileGroup(Ort::ConstNode fused) {
  if (!refusal_.empty()) throw std::invalid_argument(refusal_);
  const auto inputs = NamesOf(fused.GetInputs()), outputs = NamesOf(fused.GetOutputs());
  const auto found = std::ranges::find_if(taken_, [&](const Taken& taken) {
    return taken.layer != nullptr && std::ranges::find(taken.outputs, outputs.at(0)) != taken.outputs.end();
  });
  if (found == taken_.end())
    throw std::runtime_error("output " + outputs[0] + ": is of no node that was taken");
  return new Compiled(*this, std::move(found->layer),
                      {PlacesOf(found->inputs, inputs), PlacesOf(found->outputs, outputs)});
}

Compiled::Compiled(const Provider& owner, std::unique_ptr<Layer> computed, Places places_of_run)
    : OrtNodeComputeInfo{}, provider(owner), layer(std::move(computed)), places(std::move(places_of_run)) {
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
      Run run(context, compiled.places, compiled.provider.settings(), compiled.provider.memory());
      compiled.layer->Compute(run);
    });
  };
}

class Factory : public OrtEpFactory {
 public:
  /// `is_nhwc`: Settings::is_nhwc.
  explicit Factory(bool is_nhwc) : OrtEpFactory{}, is_nhwc_(is_nhwc) {
    ort_version_supported = ORT_API_VERSION;
    OrtEpFactory::GetName = [](const OrtEpFactory*) noexcept { return kName; };
    OrtEpFactory::GetVendor = [](const OrtEpFactory*) noexcept { return "intact"; };
    OrtEpFactory::GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
    OrtEpFactory::GetVersion = [](const OrtEpFactory*) noexcept { return intact_version(); };
    OrtEpFactory::GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices,
                                           size_t count, OrtEpDevice** found, size_t most,
                                           size_t* found_count) noexcept {
      return Guard([&] {
        *found_count = 0;
        for (size_t i = 0; i < count && *found_count < most; ++i) {
          if (Ort::GetApi().HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
          Ort::ThrowOnError(
              Ort::GetEpApi().CreateEpDevice(self, devices[i], nullptr, nullptr, &found[*found_count]));
          ++*found_count;
        }
      });
    };
    OrtEpFactory::CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*,
                                const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions* session,
                                const OrtLogger*, OrtEp** created) noexcept {
      return Guard([&] {
        const Ort::ConstSessionOptions options(session);
        std::string prefix = std::string("ep.") + kName + ".";
        std::ranges::transform(prefix, prefix.begin(), [](unsigned char c) { return std::tolower(c); });
        std::map<std::string, std::string> given;
        for (const char* const option :
             {"like", "max_isa", "mode", "quantize_activations", "report", "reproducible", "threads"})
          given[option] = options.GetConfigEntryOrDefault((prefix + option).c_str(), "");
        Settings settings = ReadSettings(given);
        settings.is_nhwc = static_cast<Factory*>(self)->is_nhwc_;
        const auto number = [&](const char* entry, int64_t otherwise) {
          return std::strtoll(options.GetConfigEntryOrDefault(entry, std::to_string(otherwise)).c_str(),
                              nullptr, 10);
        };
        settings.nbits_level = number("session.qdq_matmulnbits_accuracy_level", settings.nbits_level);
        if (const int64_t block = number("session.qdq_matmulnbits_block_size", 0); block != 0)
          settings.nbits_block = block;
        constexpr std::pair<const char*, const char*> kNeedsZero[] = {
            {"session.disable_prepacking", "products of constants else depend on the number of threads"},
            {"session.disable_quant_qdq", "pools between bytes else depend on the CPU"}};
        for (const auto& [entry, why] : kNeedsZero)
          if (settings.is_reproducible && options.GetConfigEntryOrDefault(entry, "0") == "1")
            throw std::invalid_argument(std::string(entry) +
                                        ": is '1' with reproducible; expected '0': " + why);
        *created = std::make_unique<Provider>(settings, given["report"]).release();
      });
    };
    OrtEpFactory::ReleaseEp = [](OrtEpFactory*, OrtEp* provider) noexcept {
      delete static_cast<Provider*>(provider);
    };
    OrtEpFactory::CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                                       OrtAllocator** allocator) noexcept -> OrtStatus* {
      *allocator = nullptr;  // the CPU's
      return nullptr;
    };
    OrtEpFactory::ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
    OrtEpFactory::CreateDataTransfer = [](OrtEpFactory*,
                                          OrtDataTransferImpl** transfer) noexcept -> OrtStatus* {
      *transfer = nullptr;
      return nullptr;
    };
    OrtEpFactory::IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  }

 private:
  const bool is_nhwc_;
};

}  // namespace
}  // namespace intact::onnxruntime

extern "C" {

/** ONNX Runtime's entry point: makes the factory. */
INTACT_API OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                        OrtEpFactory** factories, size_t most, size_t* count) {
  const OrtApi* const api = base->GetApi(ORT_API_VERSION);
  if (api == nullptr) {
    const std::string message = std::string("intact: ONNX Runtime is ") + base->GetVersionString() +
                                "; expected 1." + std::to_string(ORT_API_VERSION) +
                                " or newer, the version of the headers that the provider was built with";
    return base->GetApi(1)->CreateStatus(ORT_FAIL, message.c_str());  // each runtime has version 1
  }
  Ort::InitApi(api);
  return intact::onnxruntime::Guard([&] {
    *count = 0;
    if (most < 1) throw std::runtime_error("there is no room for a factory; expected room for 1");
    intact::onnxruntime::RuntimeVersion() = base->GetVersionString();
    // ONNX Runtime before 1.28 leaves some nodes that it has moved to NHWC without a kernel.
    const int minor = intact::onnxruntime::RuntimeMinor();
    factories[(*count)++] = new intact::onnxruntime::Factory(minor == 0 || minor >= 28);
  });
}

/** ONNX Runtime's entry point: the factory goes. */
INTACT_API OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<intact::onnxruntime::Factory*>(factory);
  return nullptr;
}

/** Copies what became of the nodes of the session with the option `report` = `id`: JSON, a list of objects
 * with "name", "op", "domain", "taken" and "kernel" or "reason". At most `size` bytes are written to `json`,
 * a zero at the end among them. Returns the bytes that all of it takes; 1 if there is no such session; 0 if
 * memory ran out. */
INTACT_API size_t intact_onnxruntime_report(const char* id, char* json, size_t size) {
  try {
    const std::string report = intact::onnxruntime::Reports::Get(id);
    if (size > 0) {
      const size_t copied = std::min(report.size(), size - 1);
      std::memcpy(json, report.data(), copied);
      json[copied] = '\0';
    }
    return report.size() + 1;
  } catch (const std::exception&) {
    return 0;  // no memory
  }
}
}
