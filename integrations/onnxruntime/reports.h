// What became of the nodes of each session, for whoever asks for its report.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_REPORTS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_REPORTS_H_

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ort.h"

namespace intact::onnxruntime {

/// What became of a node: the kernel that computes it, or why none does.
struct Fate {
  bool is_taken;
  std::string detail;
  std::string note = {};    ///< see Group
  std::string output = {};  ///< of the group that has the node: a name
  /// Why its bytes may depend on the CPU or on the number of threads; "": they do not.
  std::string depends = {};
};

/// A node in a report.
struct ReportedNode {
  std::string name, type, domain;
  Fate fate;
};

/// Names the nodes that may have other bytes on another CPU or with other threads; "" if there are none. `fates`: by the id of the node.
std::string DependentNodes(const std::vector<Ort::ConstNode>& nodes, const std::map<size_t, Fate>& fates);

/// Reports by the option `report`, which whoever wants to read a report gives its session. Of several sessions
/// with one value it is the last one's.
class Reports {
 public:
  static void Set(const std::string& id, const void* session, std::vector<ReportedNode> nodes);
  /// As JSON; "" if there is none.
  static std::string Get(const std::string& id);
  static void Drop(const std::string& id, const void* session);

 private:
  static inline std::mutex mutex_;
  static inline std::map<std::string, std::pair<const void*, std::vector<ReportedNode>>> reports_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_REPORTS_H_
