#include "chain.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

namespace intact::onnxruntime {
namespace {

bool MayBeChannelsLast(const Layer& layer) {
  return layer.GetOrder() == ElementOrder::kEither || layer.GetOrder() == ElementOrder::kElementwise;
}

}  // namespace

Flow::Flow(const std::vector<Ort::ConstNode>& nodes, const std::map<size_t, size_t>& takers,
           const std::vector<Step>& steps)
    : steps_(steps), chain_of_(steps.size()) {
  // The wave of a node: of all paths to it, the largest number of steps from another node to a layer. So no path between layers
  // of one wave leads through another node.
  std::unordered_map<std::string, size_t> other_waves;  // of tensors of other nodes
  std::vector<size_t> waves(steps.size());
  std::vector<std::pair<size_t, size_t>> edges;  // between steps
  std::vector<size_t> last_node(steps.size());   // the last one of each step
  for (size_t place = 0; place < nodes.size(); ++place) {
    const auto& node = nodes[place];
    const auto taker = takers.find(node.GetId());
    const int step = taker == takers.end() ? -1 : static_cast<int>(taker->second);
    size_t wave = 0;
    const auto read = [&](const Ort::ConstValueInfo& value) {
      if (value == nullptr || value.IsConstantInitializer()) return;
      const std::string name = value.GetName();
      const auto found = tensors_.find(name);
      if (found != tensors_.end() && found->second.producer >= 0) {
        const auto producer = static_cast<size_t>(found->second.producer);
        if (static_cast<int>(producer) == step) return;
        wave = std::max(wave, waves[producer]);
        if (step >= 0) edges.emplace_back(producer, step);
      } else if (const auto other = other_waves.find(name); other != other_waves.end()) {
        wave = std::max(wave, other->second + (step >= 0 ? 1 : 0));
      }
      tensors_[name].readers.push_back(step);
    };
    for (const auto& value : node.GetInputs()) read(value);
    for (const auto& value : node.GetImplicitInputs()) read(value);
    if (step >= 0) {
      size_t& of_step = waves[static_cast<size_t>(step)];
      of_step = std::max(of_step, wave);
      last_node[static_cast<size_t>(step)] = place;
    }
    for (const auto& value : node.GetOutputs()) {
      if (value == nullptr) continue;
      const std::string name = value.GetName();
      if (step >= 0) {
        tensors_[name].producer = step;
      } else {
        other_waves[name] = wave;
      }
      if (value.IsGraphOutput()) tensors_[name].readers.push_back(-1);
    }
  }
  order_.resize(steps.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::sort(order_, {}, [&](size_t step) { return last_node[step]; });
  std::iota(chain_of_.begin(), chain_of_.end(), size_t{0});
  const auto root_of = [&](size_t step) {
    while (chain_of_[step] != step) step = chain_of_[step] = chain_of_[chain_of_[step]];
    return step;
  };
  for (const auto& [from, to] : edges)
    if (waves[from] == waves[to]) chain_of_[root_of(to)] = root_of(from);
  for (size_t step = 0; step < steps.size(); ++step) chain_of_[step] = root_of(step);
}

std::vector<std::vector<size_t>> Flow::Chains() const {
  std::map<size_t, std::vector<size_t>> chains;
  for (const size_t step : order_) chains[chain_of_[step]].push_back(step);
  std::vector<std::vector<size_t>> found;
  found.reserve(chains.size());
  for (auto& [root, chain] : chains) found.push_back(std::move(chain));
  return found;
}

bool Flow::MayPassChannelsLast(int other, size_t step) const {
  return other >= 0 && chain_of_[static_cast<size_t>(other)] == chain_of_[step] &&
         MayBeChannelsLast(*steps_[static_cast<size_t>(other)].layer);
}

size_t Flow::Transpositions() const {
  std::set<size_t> chains;  // that have channels last
  for (size_t i = 0; i < steps_.size(); ++i)
    if (steps_[i].layer->GetOrder() == ElementOrder::kEither) chains.insert(chain_of_[i]);
  std::set<std::string> transposed;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const ElementOrder order = steps_[i].layer->GetOrder();
    if (!MayBeChannelsLast(*steps_[i].layer) || !chains.contains(chain_of_[i])) continue;
    // Other inputs of layers of kEither have one element.
    const size_t inputs = order == ElementOrder::kEither ? 1 : steps_[i].inputs.size();
    for (size_t input = 0; input < inputs; ++input) {
      const auto tensor = tensors_.find(steps_[i].inputs[input]);
      if (tensor != tensors_.end() && !MayPassChannelsLast(tensor->second.producer, i))
        transposed.insert(tensor->first);
    }
    const auto tensor = tensors_.find(steps_[i].outputs.at(0));
    if (tensor != tensors_.end() && !std::ranges::all_of(tensor->second.readers, [&](int reader) {
          return MayPassChannelsLast(reader, i);
        }))
      transposed.insert(tensor->first);
  }
  return transposed.size();
}

Chain::Chain(std::vector<Step> steps, const std::vector<std::string>& inputs,
             const std::vector<std::string>& outputs) {
  std::unordered_map<std::string, size_t> slots;
  const auto add = [&](const std::string& name, const Slot& slot) {
    slots[name] = slots_.size();
    slots_.push_back(slot);
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].empty()) add(inputs[i], {.input = static_cast<int>(i)});
  std::set<std::string> read;
  for (const Step& step : steps) read.insert(step.inputs.begin(), step.inputs.end());
  std::unordered_map<size_t, size_t> last_reader;  // of slots
  std::unordered_map<size_t, size_t> writers;      // of slots: layers of kEither
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    PlacedStep& placed = steps_.emplace_back();
    placed.has_channels_last = false;
    placed.output = step.outputs.at(0);
    const ElementOrder order = step.layer->GetOrder();
    for (const std::string& name : step.inputs) {
      const auto slot = slots.find(name);
      const bool is_given = !name.empty() && slot != slots.end();
      placed.places.inputs.push_back(is_given ? static_cast<int>(slot->second) : -1);
      if (!is_given) continue;
      last_reader[slot->second] = i;
      if (const auto writer = writers.find(slot->second);
          writer != writers.end() && MayBeChannelsLast(*step.layer))
        steps_[writer->second].has_channels_last = true;
    }
    for (size_t output = 0; output < step.outputs.size(); ++output) {
      const std::string& name = step.outputs[output];
      const auto place = std::ranges::find(outputs, name);
      const bool is_output = !name.empty() && place != outputs.end();
      const bool is_kept = is_output || (!name.empty() && read.contains(name));
      placed.places.outputs.push_back(is_kept ? static_cast<int>(slots_.size()) : -1);
      if (!is_kept) continue;
      if (output == 0 && order == ElementOrder::kEither) writers[slots_.size()] = i;
      add(name, {.output = is_output ? static_cast<int>(place - outputs.begin()) : -1,
                 .type = step.types.at(output)});
    }
    placed.layer = std::move(step.layer);
  }
  for (const auto& [slot, step] : last_reader) steps_[step].dropped.push_back(slot);
}

void Chain::Compute(OrtKernelContext* context, const Settings& settings, const OrtMemoryInfo* memory) const {
  Tensors tensors(context, slots_, memory);
  for (const PlacedStep& step : steps_) try {
      const ElementOrder order = step.layer->GetOrder();
      Run run(tensors, step.places, settings);
      run.Begin(order, step.has_channels_last);
      step.layer->Compute(run);
      run.End();
      for (const size_t slot : step.dropped) tensors.Drop(slot);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("output " + step.output + ": " + error.what());
    }
}

}  // namespace intact::onnxruntime
