// Layers that ONNX Runtime runs as one node: it neither plans nor sees the tensors between them.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_CHAIN_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_CHAIN_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layer.h"
#include "ort.h"
#include "run.h"

namespace intact::onnxruntime {

/// A layer with the names of the tensors that it reads and writes; "": not given.
struct Step {
  std::unique_ptr<Layer> layer;
  std::vector<std::string> inputs, outputs;
  std::vector<ONNXTensorElementDataType> types;  ///< of the outputs
};

/// How the layers of a graph pass tensors to each other.
class Flow {
 public:
  /// `nodes`: of the graph, in topological order. `takers`: for each node that a layer computes, by its id: which of `steps`.
  Flow(const std::vector<Ort::ConstNode>& nodes, const std::map<size_t, size_t>& takers,
       const std::vector<Step>& steps);

  /// Which steps one node of ONNX Runtime can run, each set in topological order: layers that pass tensors to each other, without
  /// another node on a path between two of them.
  std::vector<std::vector<size_t>> Chains() const;
  /// How many tensors change between channels first and channels last, if convolutions and pools compute channels last, and the
  /// other tensors of the graph have channels first.
  size_t Transpositions() const;

 private:
  struct Tensor {
    int producer = -1;         // which step; −1: none
    std::vector<int> readers;  // which steps; −1: another node, or the caller
  };

  // Whether a step that reads or writes `tensor` is in the chain of `step`, and may have channels last.
  bool MayPassChannelsLast(int other, size_t step) const;

  const std::vector<Step>& steps_;
  std::unordered_map<std::string, Tensor> tensors_;
  std::vector<size_t> chain_of_;  // for each step the chain, as one of its steps
  std::vector<size_t> order_;     // steps in topological order
};

/// The steps of a chain as a session runs them.
class Chain {
 public:
  /// `inputs`, `outputs`: the names of the node's tensors. `steps` are in topological order.
  Chain(std::vector<Step> steps, const std::vector<std::string>& inputs,
        const std::vector<std::string>& outputs);

  /// Any number of threads may.
  void Compute(OrtKernelContext* context, const Settings& settings, const OrtMemoryInfo* memory) const;

 private:
  struct PlacedStep {
    std::unique_ptr<Layer> layer;
    Places places;
    std::string output;           // the name of the first one, as in a report
    bool has_channels_last;       // whether a layer of kEither writes channels last
    std::vector<size_t> dropped;  // slots that no later step reads
  };

  std::vector<Slot> slots_;
  std::vector<PlacedStep> steps_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_CHAIN_H_
