// The fields of layer.json (layer.h, grouped_layer.h).
#ifndef INTACT_VERIFY_STUDIES_LAYER_FIELDS_H_
#define INTACT_VERIFY_STUDIES_LAYER_FIELDS_H_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/types.h"
#include "support/npy.h"
#include "support/printable.h"
#include "verify/problem/line.h"

namespace intact::verify {

/// Describes `value` for a message: short, and without control characters.
inline std::string ExcerptOf(const nlohmann::json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

/// Reads fields by dotted names. The first error is kept, and later reads return defaults. So the caller
/// checks only once, at the end.
class LayerFields {
 public:
  using json = nlohmann::json;
  static constexpr int64_t kMaxExtent = 1 << 20;  // limit of counts: strides, dilations, padding, groups

  LayerFields(std::string path, const json& root) : path_(std::move(path)), root_(root) {}

  const std::optional<Error>& error() const { return error_; }
  bool Has(std::string_view name) { return Find(name) != nullptr; }

  void Fail(std::string_view name, std::string_view what) {
    if (!error_) error_ = Invalid(fmt::format("{}: {}: {}", path_, name, what));
  }

  /// Fails for the first field that was never read, in the root or in an object with fields that were.
  void RefuseOthers() { RefuseOthers("", root_); }

  std::string String(std::string_view name) {
    const json* value = Require(name, &json::is_string, "a string");
    return value ? value->get<std::string>() : std::string();
  }

  bool IsArray(std::string_view name) {
    const json* value = Find(name);
    return value != nullptr && value->is_array();
  }

  /// One of `values`. `other`: an alternative, for the message.
  std::string OneOf(std::string_view name, std::span<const std::string_view> values,
                    std::string_view other = {}) {
    const std::string wanted = Alternatives(values, other);
    const json* value = Require(name, &json::is_string, wanted);
    if (value == nullptr) return {};
    auto text = value->get<std::string>();
    if (std::ranges::find(values, text) == values.end()) {
      Fail(name, fmt::format("is {}; expected {}", ExcerptOf(text), wanted));
    }
    return text;
  }
  std::string OneOf(std::string_view name, std::initializer_list<std::string_view> values,
                    std::string_view other = {}) {
    return OneOf(name, std::span(values.begin(), values.size()), other);
  }

  bool Boolean(std::string_view name) {
    const json* value = Require(name, &json::is_boolean, "true or false");
    return value != nullptr && value->get<bool>();
  }

  int32_t ZeroPoint(std::string_view name, intact_type type) {
    const json* value = Require(name, &json::is_number_integer, "an integer");
    return value ? CheckedZeroPoint(name, *value, type) : 0;
  }

  /// A finite number.
  double Number(std::string_view name) {
    const json* value = Require(name, &json::is_number, "a number");
    if (value == nullptr || std::isfinite(value->get<double>())) return value ? value->get<double>() : 0.0;
    Fail(name, fmt::format("is {}; expected a finite number", ExcerptOf(*value)));
    return 0.0;
  }

  double Scale(std::string_view name) {
    const json* value = Require(name, &json::is_number, "a number");
    return value ? CheckedScale(name, *value, false) : 1.0;
  }

  /// Scales per channel; 0 is allowed, for pruned channels.
  std::vector<double> Scales(std::string_view name, int64_t channels) {
    std::vector<double> scales;
    for (const json& element : PerChannel(name, channels)) {
      const std::string label = fmt::format("{}[{}]", name, scales.size());
      if (!element.is_number()) Fail(label, fmt::format("is {}; expected a number", ExcerptOf(element)));
      scales.push_back(element.is_number() ? CheckedScale(label, element, true) : 1.0);
    }
    return scales;
  }

  /// One integer ≥ `low`.
  int64_t Count(std::string_view name, int64_t low) {
    const json* value = Require(name, &json::is_number_integer, "an integer");
    return value ? CheckedCount(name, *value, low) : low;
  }

  /// An integer ≥ `low` for each dimension; `low` if the field is missing.
  std::vector<int64_t> Extents(std::string_view name, size_t dims, int64_t low) {
    std::vector<int64_t> extents(dims, low);
    const json* values = Has(name) ? Require(name, &json::is_array, "an array") : nullptr;
    if (values == nullptr) return extents;
    if (values->size() != dims) {
      Fail(name, fmt::format("has {} entries; expected {}, one for each dimension", values->size(), dims));
      return extents;
    }
    for (size_t i = 0; i < dims; ++i) {
      const std::string label = fmt::format("{}[{}]", name, i);
      const json& element = (*values)[i];
      if (!element.is_number_integer())
        Fail(label, fmt::format("is {}; expected an integer", ExcerptOf(element)));
      else
        extents[i] = CheckedCount(label, element, low);
    }
    return extents;
  }

  /// Empty if all are 0.
  std::vector<int32_t> ZeroPoints(std::string_view name, int64_t channels, intact_type type) {
    std::vector<int32_t> zero_points;
    for (const json& element : PerChannel(name, channels)) {
      const std::string label = fmt::format("{}[{}]", name, zero_points.size());
      if (!element.is_number_integer())
        Fail(label, fmt::format("is {}; expected an integer", ExcerptOf(element)));
      zero_points.push_back(element.is_number_integer() ? CheckedZeroPoint(label, element, type) : 0);
    }
    if (std::ranges::count(zero_points, 0) == std::ssize(zero_points)) zero_points.clear();
    return zero_points;
  }

 private:
  void RefuseOthers(const std::string& prefix, const json& object) {
    for (const auto& [key, value] : object.items()) {
      const std::string name = prefix + key;
      const auto within = asked_for_.lower_bound(name + ".");
      const bool has_fields = within != asked_for_.end() && within->starts_with(name + ".");
      if (key.find('.') != std::string::npos || !(has_fields || asked_for_.contains(name))) {
        Fail(support::Excerpt(name), "is unknown, or has no meaning for this operator or output type");
      } else if (value.is_object()) {
        RefuseOthers(name + ".", value);
      }
    }
  }

  /// `"a", "b" or "c"`, or `"a", "b" or OTHER`.
  static std::string Alternatives(std::span<const std::string_view> values, std::string_view other) {
    std::vector<std::string> words;
    for (const std::string_view value : values) words.push_back(fmt::format("\"{}\"", value));
    if (!other.empty()) words.emplace_back(other);
    const std::string last = std::move(words.back());
    words.pop_back();
    return words.empty() ? last : fmt::format("{} or {}", fmt::join(words, ", "), last);
  }

  const json* Find(std::string_view name) {
    asked_for_.emplace(name);
    const json* value = &root_;
    while (!name.empty()) {
      const size_t dot = std::min(name.find('.'), name.size());
      const auto member = value->is_object() ? value->find(name.substr(0, dot)) : value->end();
      if (!value->is_object() || member == value->end()) return nullptr;
      value = &*member;
      name.remove_prefix(std::min(dot + 1, name.size()));
    }
    return value;
  }

  const json* Require(std::string_view name, bool (json::*is_right)() const noexcept,
                      std::string_view wanted) {
    const json* value = Find(name);
    if (value == nullptr) {
      Fail(name, fmt::format("is missing; expected {}", wanted));
    } else if (!(value->*is_right)()) {
      Fail(name, fmt::format("is {}; expected {}", ExcerptOf(*value), wanted));
      value = nullptr;
    }
    return value;
  }

  json PerChannel(std::string_view name, int64_t channels) {
    const json* values = Require(name, &json::is_array, "an array");
    if (values == nullptr) return json::array();
    if (values->size() != 1 && values->size() != static_cast<size_t>(channels)) {
      Fail(name,
           fmt::format("has {} entries; expected 1 or {} (rows of weights.npy)", values->size(), channels));
      return json::array();
    }
    return *values;
  }

  int32_t CheckedZeroPoint(std::string_view name, const json& value, intact_type type) {
    const int64_t low = core::LowestOf(type);
    const double zero_point = value.get<double>();  // any JSON integer, also one beyond int64
    if (zero_point < static_cast<double>(low) || zero_point > static_cast<double>(low + 255)) {
      Fail(name, fmt::format("is {}; expected {} to {}", ExcerptOf(value), low, low + 255));
      return 0;
    }
    return static_cast<int32_t>(zero_point);
  }

  int64_t CheckedCount(std::string_view name, const json& value, int64_t low) {
    const double count = value.get<double>();  // any JSON integer, also one beyond int64
    if (count < static_cast<double>(low) || count > static_cast<double>(kMaxExtent)) {
      Fail(name, fmt::format("is {}; expected {} to {}", ExcerptOf(value), low, kMaxExtent));
      return low;
    }
    return static_cast<int64_t>(count);
  }

  double CheckedScale(std::string_view name, const json& value, bool may_be_zero) {
    const double scale = value.get<double>();
    if (std::isfinite(scale) && (scale > 0 || (scale == 0 && may_be_zero))) return scale;
    Fail(name, fmt::format("is {}; expected a finite scale {}", ExcerptOf(value),
                           may_be_zero ? "of at least 0" : "above 0"));
    return 1.0;
  }

  std::string path_;
  const json& root_;
  std::set<std::string> asked_for_;
  std::optional<Error> error_;
};

/// The error for a tensor of another type or shape.
inline Error WrongTensor(const std::string& path, const support::NpyArray& tensor,
                         std::string_view expected) {
  return Invalid(fmt::format("{}: is {} {}; expected {}", path, core::TraitsOf(tensor.type).npy,
                             support::ShapeString(tensor.shape), expected));
}

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_LAYER_FIELDS_H_
