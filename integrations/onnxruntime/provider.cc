// The execution provider that ONNX Runtime loads: a factory, a provider for each session, its compiled nodes.
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "node.h"
#include "operators.h"

namespace intact::onnxruntime {
namespace {

constexpr char kName[] = "IntactExecutionProvider";

// Calls body() for a function of ONNX Runtime's C interface: what it throws becomes a status.
template <class Body>
OrtStatus* Guard(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Ort::Exception& error) {
    return Ort::GetApi().CreateStatus(error.GetOrtErrorCode(), error.what());
  } catch (const std::exception& error) {
    return Ort::GetApi().CreateStatus(ORT_EP_FAIL, (std::string("intact: ") + error.what()).c_str());
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

// What became of the nodes of a session, in the model's order. The session's provider writes it while the session is made.
class Report {
 public:
  // Forgets the nodes of a graph, which the provider is asked about again.
  void Forget(const std::string& graph) { graphs_[graph].clear(); }
  void AddNode(const std::string& graph, Ort::ConstNode node, bool is_taken, const std::string& detail) {
    graphs_[graph].push_back(
        "{\"name\": " + Quoted(node.GetName()) + ", \"op\": " + Quoted(node.GetOperatorType()) +
        ", \"domain\": " + Quoted(node.GetDomain()) +
        ", \"taken\": " + (is_taken ? "true, \"kernel\": " : "false, \"reason\": ") + Quoted(detail) + "}");
  }
  std::string Json() const {
    std::string json;
    for (const auto& [graph, nodes] : graphs_)
      for (const std::string& node : nodes) json += (json.empty() ? "" : ",\n ") + node;
    return "[" + json + "]";
  }

 private:
  std::map<std::string, std::vector<std::string>> graphs_;
};

// Reports by the option `report`, which whoever wants to read a report gives its session.
class Reports {
 public:
  static void Set(const std::string& id, std::string json) {
    const std::lock_guard lock(mutex_);
    reports_[id] = std::move(json);
  }
  static std::string Get(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = reports_.find(id);
    return found == reports_.end() ? "" : found->second;
  }
  static void Drop(const std::string& id) {
    const std::lock_guard lock(mutex_);
    reports_.erase(id);
  }

 private:
  static inline std::mutex mutex_;
  static inline std::map<std::string, std::string> reports_;
};

int32_t AvailableThreads() {
  cpu_set_t processors;
  return sched_getaffinity(0, sizeof processors, &processors) == 0 ? CPU_COUNT(&processors) : 1;
}

[[noreturn]] void RefuseOption(const std::string& option, const std::string& value,
                               const std::string& expected) {
  throw std::runtime_error(option + ": is '" + value + "'; expected " + expected);
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
      for (const char* name; (name = intact_isa_name(isa)) != nullptr && value != name;) ++isa;
      if (intact_isa_name(isa) == nullptr)
        RefuseOption(option, value, "a name of intact_isa_name(), such as avx2");
      settings.max_isa = isa;
    } else if (option == "threads") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), settings.threads);
      if (error != std::errc() || *end != '\0' || settings.threads < 1)
        RefuseOption(option, value, "a positive number");
    }
  }
  return settings;
}

class Provider;

// A node as a session runs it.
struct Compiled : OrtNodeComputeInfo {
  Compiled(const Provider& owner, std::unique_ptr<Layer> computed, std::vector<int> places);

  const Provider& provider;
  const std::unique_ptr<Layer> layer;
  const std::vector<int> inputs;  // places among the inputs of a run
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
    OrtEp::Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, size_t count,
                        OrtNodeComputeInfo** compiled, OrtNode**) noexcept {
      return Guard([&] {
        for (size_t i = 0; i < count; ++i)
          compiled[i] =
              static_cast<Provider*>(self)->CompileNode(Ort::ConstGraph(graphs[i]), Ort::ConstNode(fused[i]));
      });
    };
    OrtEp::ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** compiled, size_t count) noexcept {
      for (size_t i = 0; i < count; ++i) delete static_cast<Compiled*>(compiled[i]);
    };
  }
  ~Provider() { Reports::Drop(report_id_); }
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;

  const Settings& settings() const { return settings_; }
  const OrtMemoryInfo* memory() const { return memory_; }

 private:
  void TakeNodes(Ort::ConstGraph graph, OrtEpGraphSupportInfo* info);
  Compiled* CompileNode(Ort::ConstGraph graph, Ort::ConstNode fused);

  const Settings settings_;
  const std::string report_id_;
  const Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  Report report_;
  // Layers of the graph that the session asked about last, by the name of their output: it compiles them next.
  std::map<std::string, std::unique_ptr<Layer>> layers_;
};

void Provider::TakeNodes(Ort::ConstGraph graph, OrtEpGraphSupportInfo* info) {
  const std::string name = graph.GetName();
  report_.Forget(name);
  layers_.clear();
  for (const Ort::ConstNode& node : graph.GetNodes()) {
    std::unique_ptr<Layer> layer;
    std::string reason;
    try {
      layer = MakeLayer(node, settings_);
    } catch (const Refusal& refusal) {
      reason = refusal.what();
    }
    report_.AddNode(name, node, layer != nullptr, layer ? layer->Kernel() : reason);
    if (!layer) continue;
    layers_[node.GetOutputs().at(0).GetName()] = std::move(layer);
    // The plan has the constants.
    const OrtNodeFusionOptions options{ORT_API_VERSION, true};
    const OrtNode* const nodes[] = {node};
    Ort::ThrowOnError(Ort::GetEpApi().EpGraphSupportInfo_AddNodesToFuse(info, nodes, 1, &options));
  }
  Reports::Set(report_id_, report_.Json());
}

Compiled* Provider::CompileNode(Ort::ConstGraph graph, Ort::ConstNode fused) {
  const Ort::ConstNode node = graph.GetNodes().at(0);
  auto layer = layers_.extract(node.GetOutputs().at(0).GetName());
  if (layer.empty()) throw std::runtime_error("node " + node.GetName() + " was not taken");
  std::vector<std::string> given;
  for (const auto& input : fused.GetInputs()) given.push_back(input.GetName());
  std::vector<int> places;
  for (const auto& input : node.GetInputs()) {
    const auto found = input == nullptr ? given.end() : std::ranges::find(given, input.GetName());
    places.push_back(found == given.end() ? -1 : static_cast<int>(found - given.begin()));
  }
  return new Compiled(*this, std::move(layer.mapped()), std::move(places));
}

Compiled::Compiled(const Provider& owner, std::unique_ptr<Layer> computed, std::vector<int> places)
    : OrtNodeComputeInfo{}, provider(owner), layer(std::move(computed)), inputs(std::move(places)) {
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
      Run run(context, compiled.inputs, compiled.provider.settings(), compiled.provider.memory());
      compiled.layer->Compute(run);
    });
  };
}

class Factory : public OrtEpFactory {
 public:
  Factory() : OrtEpFactory{} {
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
    OrtEpFactory::CreateEp = [](OrtEpFactory*, const OrtHardwareDevice* const*,
                                const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions* session,
                                const OrtLogger*, OrtEp** created) noexcept {
      return Guard([&] {
        const Ort::ConstSessionOptions options(session);
        std::string prefix = std::string("ep.") + kName + ".";
        std::ranges::transform(prefix, prefix.begin(), [](unsigned char c) { return std::tolower(c); });
        std::map<std::string, std::string> given;
        for (const char* const option : {"mode", "max_isa", "threads", "report"})
          given[option] = options.GetConfigEntryOrDefault((prefix + option).c_str(), "");
        *created = new Provider(ReadSettings(given), given["report"]);
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
};

}  // namespace
}  // namespace intact::onnxruntime

extern "C" {

/** ONNX Runtime's entry point: makes the factory. */
INTACT_API OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                        OrtEpFactory** factories, size_t most, size_t* count) {
  const OrtApi* const api = base->GetApi(ORT_API_VERSION);
  if (api == nullptr) return nullptr;  // an older runtime; it has printed why
  Ort::InitApi(api);
  return intact::onnxruntime::Guard([&] {
    *count = 0;
    if (most < 1) throw std::runtime_error("there is no room for a factory; expected room for 1");
    factories[(*count)++] = new intact::onnxruntime::Factory();
  });
}

/** ONNX Runtime's entry point: the factory goes. */
INTACT_API OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<intact::onnxruntime::Factory*>(factory);
  return nullptr;
}

/** Copies what became of the nodes of the session with the option `report` = `id`: JSON, a list of objects with "name",
 * "op", "domain", "taken" and "kernel" or "reason". At most `size` bytes are written to `json`, a zero at the end among
 * them. Returns the bytes that all of it takes; 1 if there is no such session. */
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
