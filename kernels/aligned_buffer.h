// A heap array aligned to a cache line, uninitialised, that never throws.
#ifndef INTACT_KERNELS_ALIGNED_BUFFER_H_
#define INTACT_KERNELS_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <type_traits>

namespace intact::kernels {

template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;

  /// Makes room for `size` elements; the old contents are gone unless the size is unchanged. False if memory
  /// ran out: the buffer is then empty.
  [[nodiscard]] bool Resize(size_t size) noexcept {
    if (size == size_) return true;
    data_.reset();
    size_ = 0;
    if (size > static_cast<size_t>(PTRDIFF_MAX) / sizeof(T)) return false;
    const size_t bytes = (size * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
    if (data_ == nullptr) return false;
    size_ = size;
    return true;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ALIGNED_BUFFER_H_
