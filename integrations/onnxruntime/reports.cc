#include "reports.h"

#include <nlohmann/json.hpp>

namespace intact::onnxruntime {
namespace {

nlohmann::ordered_json JsonOf(const ReportedNode& node) {
  const Fate& fate = node.fate;
  nlohmann::ordered_json json = {{"name", node.name},
                                 {"op", node.type},
                                 {"domain", node.domain},
                                 {"taken", fate.is_taken},
                                 {fate.is_taken ? "kernel" : "reason", fate.detail},
                                 {"same_bytes", fate.depends.empty()}};
  if (!fate.depends.empty()) json["depends"] = fate.depends;
  if (!fate.output.empty()) json["output"] = fate.output;
  if (!fate.note.empty()) json["note"] = fate.note;
  return json;
}

}  // namespace

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

void Reports::Set(const std::string& id, const void* session, std::vector<ReportedNode> nodes) {
  const std::lock_guard lock(mutex_);
  reports_[id] = {session, std::move(nodes)};
}

std::string Reports::Get(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = reports_.find(id);
  if (found == reports_.end()) return "";
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ReportedNode& node : found->second.second) all.push_back(JsonOf(node));
  // A name of a model need not be UTF-8.
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void Reports::Drop(const std::string& id, const void* session) {
  const std::lock_guard lock(mutex_);
  const auto found = reports_.find(id);
  if (found != reports_.end() && found->second.first == session) reports_.erase(found);
}

}  // namespace intact::onnxruntime
