#include "jit/code_cache.h"

#include <mutex>
#include <unordered_map>

namespace intact::jit {

Result<const void*> GetOrGenerate(const std::string& name,
                                  const std::function<Result<const void*>()>& generate) {
  struct Cache {
    std::mutex mutex;
    std::unordered_map<std::string, const void*> functions;
  };
  static auto* const kCache = new Cache;  // never destroyed: plans may be made until the process ends
  const std::lock_guard lock(kCache->mutex);
  const auto found = kCache->functions.find(name);
  if (found != kCache->functions.end()) return found->second;
  Result<const void*> function = generate();
  if (function) kCache->functions.emplace(name, *function);
  return function;
}

}  // namespace intact::jit
