// A heap array aligned to a cache line, uninitialised, that never throws.
#ifndef INTACT_KERNELS_RUNTIME_ALIGNED_BUFFER_H_
#define INTACT_KERNELS_RUNTIME_ALIGNED_BUFFER_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>

namespace intact::kernels {

template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;

  /// Makes room for `size` elements. The old contents are lost unless the size is unchanged. False if memory
  /// ran out; the buffer is then empty.
  [[nodiscard]] bool Resize(size_t size) noexcept {
    if (size == size_) return true;
    data_.reset();
    size_ = 0;
    if (size > (static_cast<size_t>(PTRDIFF_MAX) - kHugePage) / sizeof(T)) return false;
    // Large arrays ask for huge pages: a fault for each 4 KiB would take longer than packing the array.
    const bool is_large = size * sizeof(T) >= 2 * kHugePage;
    const size_t alignment = is_large ? kHugePage : kLine;
    const size_t bytes = (size * sizeof(T) + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(alignment, bytes)));
    if (data_ == nullptr) return false;
    if (is_large) madvise(data_.get(), bytes, MADV_HUGEPAGE);  // a hint: failure does no harm
    size_ = size;
    return true;
  }

  /// Frees the memory, and returns its pages to the system. An allocator would keep them for later allocations.
  void Release() noexcept {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<uintptr_t>(data_.get());
    const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes()) / page * page;
    if (begin < end)
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // failure does no harm
    data_.reset();
    size_ = 0;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_ALIGNED_BUFFER_H_
