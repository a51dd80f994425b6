#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// How the values of a stored tensor follow from its payload, which has fewer bits: value = payload
// x the scale of its block, in fp32. The payload is one or several [rows, columns] matrices one
// behind the other; each is cut into blocks from its first element on, and the last blocks of a row
// or a column may be smaller. Of the scales there is one tensor, in another entry of a file.
struct BlockScales {
  std::string file;  // name within the folder
  std::string key;   // the tensor of scales in it, fp32 or bf16
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t block_rows = 0;
  int64_t block_columns = 0;
  int64_t first = 0;  // which element of the matrices is the first of what is stored

  int64_t num_block_rows() const { return (rows + block_rows - 1) / block_rows; }
  int64_t num_block_columns() const { return (columns + block_columns - 1) / block_columns; }
};

// Whether tensors of the dtype can be a payload: F8_E4M3.
bool can_have_scales(at::ScalarType dtype);

// The values of elements `first` to `first + count` of the matrices, from their payload of F8_E4M3.
// `scales`: of all blocks, matrix by matrix, row by row.
void decode_blocks(const BlockScales& blocks, const std::vector<float>& scales, int64_t first,
                   int64_t count, const std::byte* payload, float* values);

}  // namespace switchyard
