// Plans that live at the same time share their generated functions: the cache finds a function by its spec.
//
//   plan ──► Function ──► code + its entry        cache:  spec ──► (weak) entry
//   plan ──► Function ──┘
//
// The cache does not own code. With its last Function a kernel's code is freed and its entry erased, so the
// cache is as large as the plans that live need, however many have come and gone.
//
// A key is a whole spec, compared member by member, and what a generator knows is its spec: a member that
// kernels depend on cannot be forgotten in the key.
//
// Thread-safe. Nobody waits for a generation: threads that miss at once generate each for itself, and the
// first one's code is shared. A failed one leaves no entry.
#ifndef INTACT_JIT_CODE_CACHE_H_
#define INTACT_JIT_CODE_CACHE_H_

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/result.h"
#include "jit/function.h"

namespace intact::jit {

/// The functions of one kind of `Spec`s, which have an operator<=>.
template <class Spec>
class CodeCache {
 public:
  /// It is never destroyed: plans may be made and destroyed until the process ends.
  static CodeCache& Instance() {
    static auto* const kCache = new CodeCache;
    return *kCache;
  }

  /// The code of `spec`, from generate() if nobody owns it yet.
  template <class Generate>
  Result<Code> Get(const Spec& spec, const Generate& generate) {
    if (Code code = Find(spec); code != nullptr) return code;
    Result<Code> code = generate(spec);
    if (!code) return code;
    return Insert(std::make_shared<Entry>(this, spec, std::move(*code)));
  }

 private:
  /// What all owners of a function share.
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

  /// The code of `entry`, or of what another thread has inserted meanwhile.
  Code Insert(std::shared_ptr<Entry> entry) {
    std::shared_ptr<Entry> other;  // outlives the lock, which its destructor takes as well
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Entry>& place = entries_[entry->spec];
    other = place.lock();
    if (other != nullptr) std::swap(entry, other);
    place = entry;
    return CodeOf(entry);
  }

  /// Another thread may have generated the function again already: then its entry stays.
  void EraseExpired(const Spec& spec) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(spec);
    if (found != entries_.end() && found->second.expired()) entries_.erase(found);
  }

  std::mutex mutex_;
  std::map<Spec, std::weak_ptr<Entry>> entries_;
};

/// The function of `spec`, shared with all who own it; from `generate`, a Result<Code>(const Spec&), if there
/// are none.
template <class F, class Spec, class Generate>
Result<F> GetFunction(const Spec& spec, const Generate& generate) {
  ASSIGN_OR_RETURN(Code code, CodeCache<Spec>::Instance().Get(spec, generate));
  return F(std::move(code));
}

}  // namespace intact::jit
#endif  // INTACT_JIT_CODE_CACHE_H_
