// What a session asks for: an execution provider, which takes nodes of the session's graphs and computes them.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_PROVIDER_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_PROVIDER_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chain.h"
#include "layer.h"
#include "ort.h"
#include "reports.h"
#include "run.h"

namespace intact::onnxruntime {

struct Compiled;

/// The provider of one session.
class Provider : public OrtEp {
 public:
  Provider(Settings settings, std::string report_id);
  ~Provider() { Reports::Drop(report_id_, this); }
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;

  const Settings& settings() const { return settings_; }
  const OrtMemoryInfo* memory() const { return memory_; }

 private:
  void TakeNodes(Ort::ConstGraph graph, OrtEpGraphSupportInfo* info);
  bool WantsNhwc(const Flow& flow, bool depends_on_moves) const;
  bool RefusesNodes(Ort::ConstGraph graph, std::map<size_t, Fate>* fates, OrtEpGraphSupportInfo* info);
  void Report(Ort::ConstGraph graph, const std::vector<Ort::ConstNode>& nodes,
              const std::map<size_t, Fate>& fates);
  Compiled* CompileChain(Ort::ConstNode fused);
  std::map<size_t, std::string> NodesLeft(const std::vector<Ort::ConstNode>& nodes,
                                          std::vector<std::unique_ptr<Layer>>* kept) const;

  const Settings settings_;
  const std::string report_id_;
  const Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  struct GraphReport {
    std::vector<ReportedNode> all, taken;  // all nodes, and the nodes that were taken
  };
  std::map<std::string, GraphReport> reports_;  // by the name of the graph: a model may have subgraphs
  // Of the graph that the session asked about last: it compiles them next.
  std::vector<Step> taken_;
  std::vector<std::vector<size_t>> chains_;  // of taken_
  std::string refusal_;                      // why a reproducible session cannot be had; "" if it can
  // Refusals of graphs without a taken node, by the graph: ONNX Runtime may ask again when it has replaced functions.
  std::map<std::string, std::string> deferred_;
  // Whether the graph's bytes depend on which tensors ONNX Runtime would move to u8. Transpositions for NHWC come between
  // QuantizeLinear and DequantizeLinear, and would hide these tensors.
  bool needs_nchw_ = false;
  bool asks_for_nhwc_;  // whether ONNX Runtime shall move nodes to NHWC
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_PROVIDER_H_
