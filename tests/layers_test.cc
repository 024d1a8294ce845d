// The order of the tree's folders: a folder includes only folders before it. So a reader can begin with the
// first one, and never meets a name that is explained later. Within a folder no modules include each other in a
// circle. python/tests/test_rooms.py checks the same of Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace intact::tests {
namespace {

namespace fs = std::filesystem;

using Order = std::vector<std::string_view>;

// Public headers come before everything and are not listed: they are included as <intact/…>.
const std::vector<Order> kOrders = {
    {"core",
     "jit",
     "kernels/runtime",
     "kernels/problem",
     "kernels/weights",
     "kernels/codegen",
     "kernels/staging",
     "kernels/engines",
     "kernels/plans",
     "kernels/api",
     "support",
     "emulator",
     "verify/targets",
     "fuzz",
     "tools",
     "bench/cases",
     "bench/report",
     "bench/peers",
     "bench/measure",
     "bench",
     "tests"},
    {"core", "reference/contract", "reference/models", "verify/problem", "verify/targets", "verify/explain",
     "verify/sweep", "verify/studies", "verify/report", "fuzz", "tools/console", "tools/commands", "tests"},
    {"core", "support", "verify", "tools/console", "bench", "tests"},
};

// Includes of the project's own files, as they are written.
std::vector<std::string> IncludesOf(std::istream& source) {
  std::vector<std::string> includes;
  constexpr std::string_view kInclude = "#include \"";
  for (std::string line; std::getline(source, line);) {
    if (!line.starts_with(kInclude)) continue;
    const size_t end = line.find('"', kInclude.size());
    includes.push_back(line.substr(kInclude.size(), end - kInclude.size()));
  }
  return includes;
}

// The index of the most specific folder of `order` that contains `path`; order.size() if there is none.
size_t PlaceOf(const Order& order, std::string_view path) {
  size_t best = order.size();
  for (size_t i = 0; i < order.size(); ++i) {
    const bool is_in = path.starts_with(order[i]) && path.substr(order[i].size()).starts_with('/');
    if (is_in && (best == order.size() || order[i].size() > order[best].size())) best = i;
  }
  return best;
}

// "a/b.h includes c/d.h, which stands after it", or "" if all is well.
std::string WhyOutOfOrder(const std::string& file, const std::string& include) {
  for (const Order& order : kOrders) {
    const size_t from = PlaceOf(order, file);
    const size_t to = PlaceOf(order, include);
    if (from < order.size() && to < order.size() && to > from) {
      return file + " includes " + include + ", which stands after it";
    }
  }
  return "";
}

// The includes of `file` that are files of the project.
std::vector<std::string> IncludesOfFile(const std::string& file) {
  std::ifstream source(fs::path(INTACT_SOURCE_DIR) / file);
  return IncludesOf(source);
}

// All files that `file` includes, directly or indirectly.
std::set<std::string> Closure(const std::string& file) {
  std::set<std::string> closure;
  std::vector<std::string> open = {file};
  while (!open.empty()) {
    const std::string next = open.back();
    open.pop_back();
    for (const std::string& include : IncludesOfFile(next)) {
      if (closure.insert(include).second) open.push_back(include);
    }
  }
  return closure;
}

// The oracle must not see code that it judges, through any header: "a/b.h sees c/d.h", or "".
std::string WhatItMustNotSee(const std::string& file, const std::set<std::string>& closure) {
  const bool is_oracle = file.starts_with("reference/");
  const bool is_verifier = file.starts_with("verify/") && !file.starts_with("verify/targets/");
  for (const std::string& seen : closure) {
    const bool is_kernel = seen.starts_with("kernels/") || seen.starts_with("jit/");
    const bool is_known = seen.starts_with("core/") || seen.starts_with("reference/");
    if ((is_verifier && is_kernel) || (is_oracle && !is_known)) return file + " sees " + seen;
  }
  return "";
}

TEST(Layers, EachFolderIncludesOnlyThoseBeforeIt) {
  size_t files = 0;
  std::map<std::string_view, size_t> in_folder;
  for (const std::string_view top :
       {"core", "jit", "kernels", "support", "emulator", "reference", "verify", "fuzz", "tools", "bench"}) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(fs::path(INTACT_SOURCE_DIR) / top)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      const std::string file = fs::relative(entry.path(), INTACT_SOURCE_DIR).string();
      std::ifstream source(entry.path());
      for (const std::string& include : IncludesOf(source)) EXPECT_EQ(WhyOutOfOrder(file, include), "");
      EXPECT_EQ(WhatItMustNotSee(file, Closure(file)), "");
      ++files;
      for (const std::string_view folder : kOrders[0]) {
        if (file.starts_with(folder)) ++in_folder[folder];
      }
      EXPECT_FALSE(file.starts_with("kernels/") && PlaceOf(kOrders[0], file) == kOrders[0].size())
          << file << " is in no folder that has a place";
    }
  }
  EXPECT_GT(files, 150u);
  for (const std::string_view folder : kOrders[0]) {
    if (!folder.starts_with("kernels/")) continue;
    EXPECT_GT(in_folder[folder], 1u) << folder;
  }
}

// What each module includes. A module is a .h with its .cc.
using Graph = std::map<std::string, std::set<std::string>>;

std::string ModuleOf(const fs::path& file) { return fs::path(file).replace_extension().string(); }

// The file of the project that `file` includes as `include`, or "".
std::string Resolved(const fs::path& file, const std::string& include) {
  for (const fs::path& folder : {fs::path(), file.parent_path(), fs::path("include")}) {
    const fs::path path = (folder / include).lexically_normal();
    if (fs::exists(fs::path(INTACT_SOURCE_DIR) / path)) return path.string();
  }
  return "";
}

void AddModule(const fs::path& file, Graph* graph) {
  std::set<std::string>& included = (*graph)[ModuleOf(file)];
  for (const std::string& include : IncludesOfFile(file.string())) {
    const std::string path = Resolved(file, include);
    if (!path.empty() && ModuleOf(path) != ModuleOf(file)) included.insert(ModuleOf(path));
  }
}

// Appends the circles that are met from `module` on, each as "a -> b -> a". `open` has the way to it.
void FindCircles(const Graph& graph, const std::string& module, std::vector<std::string>* open,
                 std::set<std::string>* done, std::vector<std::string>* circles) {
  const auto on_way = std::ranges::find(*open, module);
  if (on_way != open->end()) {
    std::string circle;
    for (auto each = on_way; each != open->end(); ++each) circle += *each + " -> ";
    circles->push_back(circle + module);
    return;
  }
  if (!done->insert(module).second) return;
  open->push_back(module);
  const auto included = graph.find(module);
  if (included != graph.end()) {
    for (const std::string& next : included->second) FindCircles(graph, next, open, done, circles);
  }
  open->pop_back();
}

std::vector<std::string> CirclesOf(const Graph& graph) {
  std::vector<std::string> circles;
  std::set<std::string> done;
  for (const auto& [module, included] : graph) {
    std::vector<std::string> open;
    FindCircles(graph, module, &open, &done, &circles);
  }
  return circles;
}

TEST(Layers, ModulesIncludeEachOtherInNoCircle) {
  Graph graph;
  for (const std::string_view top :
       {"core", "jit", "kernels", "support", "emulator", "reference", "verify", "fuzz", "tools", "bench",
        "tests", "peers", "integrations", "examples"}) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(fs::path(INTACT_SOURCE_DIR) / top)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc") {
        AddModule(fs::relative(entry.path(), INTACT_SOURCE_DIR), &graph);
      }
    }
  }
  EXPECT_GT(graph.size(), 400u);
  EXPECT_TRUE(graph["integrations/onnxruntime/plans"].contains("integrations/onnxruntime/linear"));
  EXPECT_THAT(CirclesOf(graph), testing::IsEmpty());
}

TEST(Layers, CirclesAreFound) {
  EXPECT_THAT(CirclesOf({{"a", {"b"}}, {"b", {"c", "d"}}, {"c", {"d"}}, {"d", {}}}), testing::IsEmpty());
  EXPECT_THAT(CirclesOf({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}), testing::ElementsAre("b -> c -> b"));
  EXPECT_THAT(CirclesOf({{"a", {"c"}}, {"b", {"a", "c"}}, {"c", {"b"}}}),
              testing::ElementsAre("a -> c -> b -> a", "c -> b -> c"));
}

TEST(Layers, FaultsAreFound) {
  EXPECT_NE(WhyOutOfOrder("kernels/problem/access.h", "kernels/weights/pack.h"), "");
  EXPECT_NE(WhyOutOfOrder("jit/isa.h", "kernels/runtime/blocking.h"), "");
  EXPECT_NE(WhyOutOfOrder("core/types.h", "jit/isa.h"), "");
  EXPECT_NE(WhyOutOfOrder("core/types.h", "reference/contract/gemm.h"), "");
  EXPECT_NE(WhyOutOfOrder("reference/contract/gemm.h", "verify/problem/problem.h"), "");
  EXPECT_NE(WhyOutOfOrder("verify/explain/compare.cc", "verify/sweep/sweep.h"), "");
  EXPECT_NE(WhatItMustNotSee("verify/sweep/sweep.cc", {"core/types.h", "kernels/runtime/blocking.h"}), "");
  EXPECT_NE(WhatItMustNotSee("reference/contract/gemm.cc", {"support/random.h"}), "");
  EXPECT_EQ(WhatItMustNotSee("verify/targets/intact_target.cc", {"kernels/api/create.h"}), "");
  EXPECT_TRUE(
      Closure("verify/explain/compare.cc").contains("reference/contract/linear.h"));  // through gemm.h
  EXPECT_EQ(WhyOutOfOrder("verify/targets/intact_target.cc", "kernels/api/create.h"), "");
  EXPECT_EQ(WhyOutOfOrder("kernels/plans/gemm_plan.h", "kernels/engines/engine.h"), "");
  std::istringstream source("#include <vector>\n#include \"jit/isa.h\"\n// #include \"none.h\"\n");
  EXPECT_EQ(IncludesOf(source), std::vector<std::string>{"jit/isa.h"});
}

}  // namespace
}  // namespace intact::tests
