#include <algorithm>
#include <string>
#include <vector>

#include "reference/models/arithmetic.h"
#include "reference/models/grouped.h"
#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/explain/identify.h"

namespace intact::tools {
namespace {

using Shape = verify::OperationKind::Shape;

// Lists the words of arithmetics and their meanings. Words for sums may be joined; only single words are
// listed, each once.
int ListModels() {
  std::vector<reference::Arithmetic> listed;
  const auto list = [&listed](const reference::Arithmetic& arithmetic) {
    const std::string text = ToString(arithmetic);
    const bool is_joined =
        std::ranges::count(text, ',') > 1 && arithmetic.rounding == reference::Rounding::kContract;
    if (is_joined || verify::IsOddInterval(arithmetic.model.spill)) return;
    if (std::ranges::find(listed, arithmetic) != listed.end()) return;
    listed.push_back(arithmetic);
    Print("  {:<32} {}\n", text, verify::InWords(arithmetic));
  };
  Print("how products are summed\n");
  for (const Shape shape : {Shape::kGemm, Shape::kConv, Shape::kDepthwise}) {
    for (const intact_type a : {INTACT_U8, INTACT_S8}) {
      for (const intact_type b : {INTACT_S8, INTACT_U8}) {
        for (const reference::Model& model : verify::CandidateModels({shape, a, b, INTACT_S32}))
          list({model});
      }
    }
  }
  Print(
      "words may be joined: maddubs, flattened depth, moved signs; acc16, widened every 8 pairs, wrapping\n"
      "flattened depth: pairs and quads of a convolution cross taps\n"
      "kernel rows: pairs are taps of a row of the kernel; kernel columns: taps of the kernel, column by "
      "column\n"
      "N lanes: numbers are added to N sums in turn; every 3, 5, 9 … pairs is tried too\n"
      "how sums become outputs\n");
  for (const intact_type c : {INTACT_U8, INTACT_F32, INTACT_BF16}) {
    for (const reference::Rounding rounding : verify::CandidateRoundings(c))
      list({listed.front().model, rounding});
  }
  Print("products with grouped weights (verify grouped, verify layer)\n");
  for (const reference::GroupedModel model : reference::AllGroupedModels()) {
    if (!reference::IsFault(model)) Print("  {}\n", reference::ToString(model));
  }
  using reference::GroupedActivations;
  for (const auto activations : {GroupedActivations::kReciprocal, GroupedActivations::kReciprocalHalf}) {
    Print("  {}\n", reference::ToString(reference::GroupedArithmetic{activations}));
  }
  return kParity;
}

}  // namespace

void AddVerifyModels(CLI::App* verify, Command* command) {
  CLI::App* models =
      verify->add_subcommand("models", "list the arithmetics that the verifier tries for other libraries");
  models->callback([command] { *command = ListModels; });
}

}  // namespace intact::tools
