#pragma once

#include "hub/family.h"

namespace switchyard {

// Rows of the three generations of Gemma (modeling_gemma.py, modeling_gemma2.py,
// modeling_gemma3.py): norms that multiply by 1 + weight, and an embedding scaled by the square
// root of the hidden size.

// What the generations differ in; the rest of their fields' standard values they share.
struct GemmaStandards {
  int64_t vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, max_position;
  int64_t ffn_hidden_size;
  std::string activation_field = "hidden_activation";
};
std::vector<FieldRule> gemma_fields(const GemmaStandards& standards);
std::vector<FixedField> gemma_fixed_fields();

// The embedding times the square root of the hidden size.
FieldGroup scaled_embedding();
// query_pre_attn_scalar: products of queries and keys are divided by its square root.
FieldGroup query_scalar();

std::vector<TensorRule> gemma_tensors();
// The same with norms after attention and MLP too (Gemma 2, 3).
std::vector<TensorRule> post_normed_gemma_tensors();

}  // namespace switchyard
