#pragma once

#include <string>
#include <string_view>

namespace switchyard {

// The text of one line of a .jsonl file, or why there is none.
struct JsonLine {
  std::string text;
  std::string mistake;  // "is not JSON (byte 17)", to come after the file and the line; "" for none
};

// The string under `key` of the JSON object in `line`, escapes resolved; of a key that is there
// several times, the last. Strict JSON in valid UTF-8.
JsonLine text_of_json_line(std::string_view line, const std::string& key);

}  // namespace switchyard
