// The order in which the tree stands: a folder includes only those that stand before it. So a reader can
// begin at the first and never meets a name that is explained later.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace intact::tests {
namespace {

namespace fs = std::filesystem;

using Order = std::vector<std::string_view>;

// Public headers are before everything and not listed: they are included as <intact/…>.
const std::vector<Order> kOrders = {
    {"core", "jit", "kernels/runtime", "kernels/problem", "kernels/weights", "kernels/codegen", "kernels/staging",
     "kernels/engines", "kernels/plans", "kernels/api", "emulator", "verify/targets", "fuzz", "tools",
     "bench", "tests"},
    {"core", "reference", "verify", "fuzz", "tools", "bench", "tests"},
};

// Includes of the project's own files, as they are spelled.
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

// The most specific folder of `order` that `path` is in; order.size() if it is in none.
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
  const bool is_apart = (file.starts_with("reference/") ||
                         (file.starts_with("verify/") && !file.starts_with("verify/targets/"))) &&
                        (include.starts_with("kernels/") || include.starts_with("jit/"));
  return is_apart ? file + " includes " + include + "; only verify/targets sees kernels" : "";
}

TEST(Layers, EachFolderIncludesOnlyThoseBeforeIt) {
  size_t files = 0;
  std::map<std::string_view, size_t> in_folder;
  for (const std::string_view top :
       {"core", "jit", "kernels", "emulator", "reference", "verify", "fuzz", "tools", "bench"}) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(fs::path(INTACT_SOURCE_DIR) / top)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      const std::string file = fs::relative(entry.path(), INTACT_SOURCE_DIR).string();
      std::ifstream source(entry.path());
      for (const std::string& include : IncludesOf(source)) EXPECT_EQ(WhyOutOfOrder(file, include), "");
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

TEST(Layers, FaultsAreFound) {
  EXPECT_NE(WhyOutOfOrder("kernels/problem/access.h", "kernels/weights/pack.h"), "");
  EXPECT_NE(WhyOutOfOrder("jit/isa.h", "kernels/runtime/blocking.h"), "");
  EXPECT_NE(WhyOutOfOrder("core/types.h", "jit/isa.h"), "");
  EXPECT_NE(WhyOutOfOrder("core/types.h", "reference/contract/gemm.h"), "");
  EXPECT_NE(WhyOutOfOrder("reference/contract/gemm.h", "verify/problem/problem.h"), "");
  EXPECT_NE(WhyOutOfOrder("verify/sweep/sweep.cc", "kernels/runtime/blocking.h"), "");
  EXPECT_EQ(WhyOutOfOrder("verify/targets/intact_target.cc", "kernels/api/create.h"), "");
  EXPECT_EQ(WhyOutOfOrder("kernels/plans/gemm_plan.h", "kernels/engines/engine.h"), "");
  std::istringstream source("#include <vector>\n#include \"jit/isa.h\"\n// #include \"none.h\"\n");
  EXPECT_EQ(IncludesOf(source), std::vector<std::string>{"jit/isa.h"});
}

}  // namespace
}  // namespace intact::tests
