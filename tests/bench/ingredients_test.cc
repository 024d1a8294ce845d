// Probes of instruction peaks: each computes the sums that its ingredients imply.
#include "bench/ingredients.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace intact::bench {
namespace {

TEST(Ingredients, ProbesComputeTheirSums) {
  std::set<std::string> probed;
  for (const Peak& peak : AvailablePeaks()) {
    if (!HasProbes(peak)) continue;
    probed.insert(peak.name);
    for (const Ingredients& ingredients : AllIngredients()) {
      SCOPED_TRACE(peak.name + "/" + ingredients.name);
      Result<IngredientProbe> probe = IngredientProbe::Create(peak, ingredients);
      ASSERT_TRUE(probe) << probe.error().message;
      EXPECT_EQ(probe->WrongSums(), probe->CountSums());
      probe->Run();
      EXPECT_EQ(probe->WrongSums(), 0);
      probe->Run(2);
      EXPECT_EQ(probe->WrongSums(), 0);
    }
  }
  EXPECT_TRUE(probed.contains("maddubs/ymm"));
}

TEST(Ingredients, EachStepAddsOne) {
  const std::vector<Ingredients>& all = AllIngredients();
  const auto count = [](const Ingredients& of) {
    return int{of.b_from_l2} + int{of.has_a} + int{of.stores_c} + int{of.crosses_lines};
  };
  for (size_t i = 0; i + 2 < all.size(); ++i)
    EXPECT_EQ(count(all[i + 1]), count(all[i]) + 1) << all[i + 1].name;
  EXPECT_TRUE(all.back().is_kernel);
}

}  // namespace
}  // namespace intact::bench
