#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::checkpoint {
namespace {

using base::InputError;
using base::text;

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kWriteAgain = ": the file is damaged or incomplete: fetch or write it again";

// Bytes of a shape's packed elements; none if the number overflows or ends within a byte.
std::optional<int64_t> shape_bytes(const std::vector<int64_t>& shape, int64_t element_bits) {
  int64_t bits = element_bits;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// Receives a SAX parser's events. Depth 1 has tensors' names, depth 2 their properties.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(SafetensorsHeader& header, std::string file) : header_(header), file_(std::move(file)) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return scalar(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = list_ != nullptr && std::in_range<int64_t>(value);
    if (!fits) return scalar(std::to_string(value));
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(number_float_t, const string_t& digits) override { return scalar(digits); }
  bool binary(binary_t&) override { return scalar("binary"); }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata[key_] = std::move(value);
    } else if (depth_ == 2 && key_ == "dtype") {
      tensor().format_type = std::move(value);
    } else {
      return scalar("'" + value + "'");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (list_ != nullptr) return scalar("an object");
    ++depth_;
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (depth_ != 1) return true;
    in_metadata_ = key_ == kMetadata;
    if (in_metadata_) return true;
    if (!names_.insert(key_).second)
      throw InputError(text(file_, ": tensor '", key_, "' stands there twice", kWriteAgain));
    offsets_.clear();
    shaped_ = false;
    tensor_.emplace(TensorInfo{.name = key_});
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && tensor_) finish_tensor();
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ == 0) throw InputError(text(file_, ": the header is no JSON object", kWriteAgain));
    if (list_ != nullptr || depth_ != 2 || !tensor_) return scalar("a list");
    if (key_ == "shape") list_ = &tensor_->shape;
    if (key_ == "data_offsets") list_ = &offsets_;
    if (list_ == nullptr) list_ = &unknown_;
    shaped_ = shaped_ || key_ == "shape";
    list_->clear();
    return true;
  }

  bool end_array() override {
    list_ = nullptr;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw InputError(text(file_, ": the header is not JSON at byte ", position, kWriteAgain));
  }

 private:
  std::string where() const { return text(file_, ": tensor '", tensor_ ? tensor_->name : key_, "'"); }

  TensorInfo& tensor() {
    if (!tensor_) throw InputError(text(file_, ": the header is no JSON object of tensors", kWriteAgain));
    return *tensor_;
  }

  // Handles a scalar where the format allows none. Keys unknown to the format may have any
  // value.
  bool scalar(const std::string& value) {
    if (depth_ == 0) throw InputError(text(file_, ": the header is no JSON object", kWriteAgain));
    const bool known = key_ == "shape" || key_ == "data_offsets" || key_ == "dtype";
    if (list_ == &unknown_ || depth_ > 2 || (depth_ == 2 && !known) || in_metadata_) return true;
    if (list_ != nullptr)
      throw InputError(text(where(), ": key '", key_, "' holds ", value, ", not a size", kWriteAgain));
    throw InputError(text(where(), ": key '", key_, "' is ", value, kWriteAgain));
  }

  void finish_tensor() {
    TensorInfo& found = *tensor_;
    const auto missing = [&](const char* key) {
      throw InputError(text(where(), ": key '", key, "' is missing", kWriteAgain));
    };
    if (found.format_type.empty()) missing("dtype");
    if (!shaped_) missing("shape");
    if (offsets_.empty()) missing("data_offsets");
    const int64_t bits = element_bits(found.format_type);
    if (bits == 0) {
      throw InputError(text(where(), ": unknown dtype '", found.format_type,
                            "': no type of the safetensors format that this program knows; a newer program "
                            "may have written it"));
    }
    found.type = type_from_format_name(found.format_type);
    const std::optional<int64_t> expected = shape_bytes(found.shape, bits);
    const bool fits = offsets_.size() == 2 && expected && offsets_[1] - offsets_[0] == *expected;
    if (!fits) {
      throw InputError(text(where(), ": data_offsets ", shape_text(offsets_), " do not fit shape ",
                            shape_text(found.shape), " of ", found.format_type, kWriteAgain));
    }
    found.begin_byte = offsets_[0];
    found.end_byte = offsets_[1];
    header_.tensors.push_back(std::move(found));
    tensor_.reset();
  }

  SafetensorsHeader& header_;
  std::string file_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool shaped_ = false;
  std::string key_;
  std::optional<TensorInfo> tensor_;
  std::vector<int64_t> offsets_, unknown_;
  std::vector<int64_t>* list_ = nullptr;  // the list that is being read
  std::unordered_set<std::string> names_;
};

}  // namespace

const char* TensorInfo::type_name() const {
  return type == TensorType::kOther ? format_type.c_str() : format_name(type);
}

int64_t TensorInfo::bytes() const { return elements() * element_bits(type_name()) / 8; }

int64_t TensorInfo::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + base::join(sizes, ", ") + "]";
}

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& file) {
  SafetensorsHeader header;
  HeaderEvents events(header, file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  return header;
}

}  // namespace sluice::checkpoint
