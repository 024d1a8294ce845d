// Existing plans share their generated functions: the cache finds a function by its spec.
//
//   plan ──► Function ──► code + its entry        cache:  spec ──► (weak) entry
//   plan ──► Function ──┘
//
// The cache does not own code. When a kernel's last Function is destroyed, its code is freed and its entry
// erased. So the cache holds only what existing plans need.
//
// "Code" may also be read-only data that is slow to compute from its spec. GetFunction() is not used for
// data.
//
// A key is a whole spec, compared member by member, and a generator gets only its spec. So the key contains
// each member that kernels depend on.
//
// Thread-safe. No thread waits until another thread has generated code. Threads that miss concurrently all
// generate code. They then share the code that was inserted first. A failed generation leaves no entry.
#ifndef INTACT_JIT_CODE_CACHE_H_
#define INTACT_JIT_CODE_CACHE_H_

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/result.h"
#include "jit/function.h"

namespace intact::jit {

/// The functions of one type of spec. `Spec` has an operator<=>.
template <class Spec>
class CodeCache {
 public:
  /// The cache is never destroyed: plans may be made and destroyed until the process ends.
  static CodeCache& Instance() {
    static auto* const kCache = new CodeCache;
    return *kCache;
  }

  /// The code of `spec`; calls generate() if no function owns it yet.
  template <class Generate>
  Result<Code> Get(const Spec& spec, const Generate& generate) {
    if (Code code = Find(spec); code != nullptr) return code;
    Result<Code> code = generate(spec);
    if (!code) return code;
    return Insert(std::make_shared<Entry>(this, spec, std::move(*code)));
  }

 private:
  /// The data that all owners of a function share.
  struct Entry {
    Entry(CodeCache* in_cache, Spec its_spec, Code its_code)
        : cache(in_cache), spec(std::move(its_spec)), code(std::move(its_code)) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() { cache->EraseExpired(spec); }

    CodeCache* cache;
    Spec spec;
    Code code;
  };

  static Code CodeOf(const std::shared_ptr<Entry>& entry) { return Code(entry, entry->code.get()); }

  Code Find(const Spec& spec) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(spec);
    const std::shared_ptr<Entry> entry = found == entries_.end() ? nullptr : found->second.lock();
    return entry == nullptr ? nullptr : CodeOf(entry);
  }

  /// The code of `entry`, or of the entry that another thread has inserted meanwhile.
  Code Insert(std::shared_ptr<Entry> entry) {
    std::shared_ptr<Entry> other;  // outlives the lock, because its destructor locks the mutex too
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Entry>& place = entries_[entry->spec];
    other = place.lock();
    if (other != nullptr) std::swap(entry, other);
    place = entry;
    return CodeOf(entry);
  }

  /// If another thread has generated the function again already, its entry stays.
  void EraseExpired(const Spec& spec) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(spec);
    if (found != entries_.end() && found->second.expired()) entries_.erase(found);
  }

  std::mutex mutex_;
  std::map<Spec, std::weak_ptr<Entry>> entries_;
};

/// The function of `spec`, shared with all its owners. If no owner exists, `generate`, a Result<Code>(const
/// Spec&), makes the code.
template <class F, class Spec, class Generate>
Result<F> GetFunction(const Spec& spec, const Generate& generate) {
  ASSIGN_OR_RETURN(Code code, CodeCache<Spec>::Instance().Get(spec, generate));
  return F(std::move(code));
}

}  // namespace intact::jit
#endif  // INTACT_JIT_CODE_CACHE_H_
