#pragma once

#include <string>

namespace switchyard {

// Is there a data set at this prefix, that is an .idx file?
bool is_dataset(const std::string& prefix);

// A data set in words for a person: a table of what it is, then the beginnings of its first
// documents, decoded, with the boundaries between tokens. With `verify` all of .bin is read and
// compared with its checksum. Throws FileError for a damaged one.
std::string describe_dataset(const std::string& prefix, bool verify);

}  // namespace switchyard
