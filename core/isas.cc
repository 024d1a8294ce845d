#include "core/isas.h"

#include <algorithm>

namespace intact::core {

std::string IsaSet::ToString() const {
  std::string text;
  for (const Isa isa : kAllIsas) {
    if (!Has(isa)) continue;
    if (!text.empty()) text += ", ";
    text += core::ToString(isa);
  }
  return text;
}

std::string CompactName(Isa isa) {
  std::string name(ToString(isa));
  name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
  return name;
}

Result<Isa> ParseIsa(std::string_view name) {
  for (const Isa isa : kAllIsas) {
    if (ToString(isa) == name) return isa;
  }
  std::string known;
  for (const IsaTraits& isa : kIsaTraits) known += (known.empty() ? "" : ", ") + std::string(isa.name);
  return Error{INTACT_INVALID_ARGUMENT, "unknown ISA '" + std::string(name) + "'; expected one of " + known};
}

}  // namespace intact::core
