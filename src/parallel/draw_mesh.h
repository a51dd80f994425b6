#pragma once

#include <string>

#include "parallel/mesh.h"

namespace switchyard {

// The grid in words, for people: the coordinates of every rank in both foldings, and its node where
// several are declared; then the groups that are larger than one rank, each with its members. Lines
// end in "\n".
std::string draw_mesh(const Mesh& mesh);

}  // namespace switchyard
