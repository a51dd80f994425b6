#include "data/json_line.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace switchyard {
namespace {

using Json = nlohmann::json;

// Keeps one string of the outermost object and forgets the rest as it goes by.
class KeyFinder : public nlohmann::json_sax<Json> {
 public:
  explicit KeyFinder(const std::string& key) : key_(key) {}

  bool key(std::string& name) override {
    is_wanted_ = depth_ == 1 && name == key_;
    return true;
  }
  bool string(std::string& value) override {
    if (is_value("")) {
      line_.text = std::move(value);
    }
    return true;
  }
  bool null() override { return other_value("null"); }
  bool boolean(bool /*value*/) override { return other_value("a boolean"); }
  bool number_integer(int64_t /*value*/) override { return other_value("a number"); }
  bool number_unsigned(uint64_t /*value*/) override { return other_value("a number"); }
  bool number_float(double /*value*/, const std::string& /*text*/) override {
    return other_value("a number");
  }
  bool binary(binary_t& /*value*/) override { return other_value("bytes"); }
  bool start_object(size_t /*size*/) override {
    is_object_ = is_object_ || depth_ == 0;
    return open("an object");
  }
  bool start_array(size_t /*size*/) override { return open("a list"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    line_.mistake = fmt::format("is not JSON (byte {})", position);
    return false;
  }

  JsonLine take() {
    if (!line_.mistake.empty()) {
      return std::move(line_);
    }
    if (!is_object_) {
      line_.mistake = "is not a JSON object";
    } else if (!is_found_) {
      line_.mistake = fmt::format("has no key \"{}\"", key_);
    } else if (!kind_.empty()) {
      line_.mistake = fmt::format("has {} under \"{}\", expected a string", kind_, key_);
    }
    return std::move(line_);
  }

 private:
  // Whether this is the value that was asked for, which is `kind` ("" for a string).
  bool is_value(const char* kind) {
    if (!std::exchange(is_wanted_, false)) {
      return false;
    }
    is_found_ = true;
    kind_ = kind;
    return true;
  }
  bool other_value(const char* kind) {
    is_value(kind);
    return true;
  }
  bool open(const char* kind) {
    is_value(kind);
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& key_;
  JsonLine line_;
  std::string kind_;
  int64_t depth_ = 0;
  bool is_object_ = false;
  bool is_wanted_ = false;
  bool is_found_ = false;
};

}  // namespace

JsonLine text_of_json_line(std::string_view line, const std::string& key) {
  KeyFinder finder(key);
  Json::sax_parse(line.begin(), line.end(), &finder);
  return finder.take();
}

}  // namespace switchyard
