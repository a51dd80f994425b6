#pragma once

#include "hub/family.h"

namespace switchyard {

// Rows of the families with DeepSeek's attention and experts.

// kv_lora_rank, q_lora_rank (null: none) and the widths of heads, with the standard values that the
// classes share.
std::vector<FieldRule> latent_attention_fields();
// Fields that follow from these, which transformers computes again, and refuses no value of.
FieldGroup latent_attention_widths();
// q_proj, or q_a_proj and what follows it; kv_a_proj_with_mqa and what follows it.
std::vector<TensorRule> latent_attention_tensors();

// Of modules of multi-token prediction, behind the last layer: what they have besides a layer, and
// the same tensors of their layers as `layer_tensors` has of the model's own. `final_norm`: the
// name of the norm behind the layer.
std::vector<TensorRule> prediction_tensors(const std::vector<TensorRule>& layer_tensors,
                                           const std::string& final_norm);
// Their copies of embedding and head.
std::vector<DroppedTensor> prediction_dropped();

// aux_loss_alpha and seq_aux, which transformers does not look at: the balance loss of DeepSeek's
// own code, over each sequence or over a micro-batch, 1 per layer when balanced as ours is. Off
// where the file does not speak of it.
FieldGroup sequence_balance_loss();

}  // namespace switchyard
