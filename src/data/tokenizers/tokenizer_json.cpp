#include "data/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/byte_alphabet.h"
#include "data/tokenizers/end_of_document.h"
#include "data/tokenizers/fingerprint.h"
#include "data/tokenizers/json_components.h"
#include "data/tokenizers/json_object.h"
#include "data/tokenizers/pipeline_tokenizer.h"
#include "data/tokenizers/unigram.h"

namespace switchyard {
namespace {

using nlohmann::json;
constexpr auto kNone = Vocabulary::kNone;
constexpr int64_t kMaxId = (int64_t{1} << 28) - 1;  // far above any vocabulary

constexpr double kUnknownPenalty = 10.0;  // of an unknown character, below the worst token

using Tokens = std::vector<std::pair<std::string, int32_t>>;

int32_t checked_id(const json& id, const std::string& token, const JsonObject& where) {
  check<FileError>(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= kMaxId,
                   "{}: the id of \"{}\" is {}, expected 0 to {}", where.where(), token, id.dump(),
                   kMaxId);
  return id.get<int32_t>();
}

Tokens read_bpe_vocabulary(const JsonObject& model) {
  Tokens tokens;
  const JsonObject vocabulary = model.object("vocab");
  std::vector<bool> is_taken;
  for (const auto& [token, id_json] : vocabulary.raw().items()) {
    const int32_t id = checked_id(id_json, token, vocabulary);
    is_taken.resize(std::max(is_taken.size(), static_cast<size_t>(id) + 1));
    check<FileError>(!is_taken[static_cast<size_t>(id)], "{}: two tokens have the id {}",
                     vocabulary.where(), id);
    check<FileError>(!token.empty(), "{}: the token with the id {} is empty", vocabulary.where(),
                     id);
    is_taken[static_cast<size_t>(id)] = true;
    tokens.emplace_back(token, id);
  }
  check<FileError>(!tokens.empty(), "{} is empty", vocabulary.where());
  return tokens;
}

// A merge is "left right" or ["left", "right"].
std::pair<std::string, std::string> read_merge(const json& merge, const std::string& where) {
  if (merge.is_array()) {
    check<FileError>(merge.size() == 2, "{} is not a pair of tokens", where);
    return {text_of(merge[0], where, "left"), text_of(merge[1], where, "right")};
  }
  const std::string text = text_of(merge, where, "merge");
  const size_t space = text.find(' ');
  check<FileError>(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
                   "{} is \"{}\", expected two tokens with a space between", where, text);
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<BpeMerge> read_merges(const JsonObject& model, const Vocabulary& vocabulary,
                                  Fingerprint& fingerprint) {
  const json& list = model.array("merges");
  std::vector<BpeMerge> merges;
  merges.reserve(list.size());
  for (const json& entry : list) {
    // The head line of merges.txt, which some converters carry over.
    if (entry.is_string() && entry.get_ref<const std::string&>().starts_with("#version")) {
      continue;
    }
    const std::string where = fmt::format("{}: merges[{}]", model.where(), merges.size());
    const auto [left, right] = read_merge(entry, where);
    const auto id_of = [&](const std::string& token) {
      const int32_t id = vocabulary.find(token);
      check<FileError>(id != kNone, "{}: \"{}\" is not in the vocabulary", where, token);
      return id;
    };
    merges.push_back(
        {id_of(left), id_of(right), id_of(left + right), static_cast<uint32_t>(merges.size())});
    fingerprint.add(merges.back().left);
    fingerprint.add(merges.back().right);
  }
  return merges;
}

void refuse_if_set(const JsonObject& model, const char* key) {
  check<FileError>(model.optional_text(key).value_or("").empty(),
                   "{}: \"{}\" is \"{}\", which is not implemented", model.where(), key,
                   model.optional_text(key).value_or(""));
}

// Reads a file, part after part, in the order in which the parts need each other.
class Reader {
 public:
  Reader(const std::string& path, const std::string& name)
      : path_(path), json_(read_json_file(path)), file_(json_, path) {
    parts_->name = name;
  }

  std::unique_ptr<Tokenizer> read() {
    const std::string version = file_.optional_text("version").value_or("1.0");
    check<FileError>(version == "1.0", "{}: version is \"{}\", this program reads 1.0", path_,
                     version);
    if (file_.has("normalizer")) {
      parts_->normalizer = read_normalizer(file_.object("normalizer"));
    }
    read_model();
    read_added_tokens();
    read_decoding();
    if (file_.has("post_processor")) {
      SurroundingIds ids = read_post_processor(file_.object("post_processor"));
      check_surrounding(ids.before);
      check_surrounding(ids.after);
      parts_->ids_before = std::move(ids.before);
      parts_->ids_after = std::move(ids.after);
    }
    parts_->end_of_document =
        find_end_of_document(path_, std::ssize(parts_->token_texts),
                             [&](std::string_view token) { return find(token); });
    finish_fingerprint();
    return std::make_unique<PipelineTokenizer>(std::move(parts_));
  }

 private:
  int32_t find(std::string_view token) const {
    const auto added = std::find_if(added_.begin(), added_.end(), [&](const AddedToken& candidate) {
      return candidate.content == token;
    });
    return added != added_.end() ? added->id : vocabulary_.find(token);
  }

  void put_text(int32_t id, std::string text) {
    const auto index = static_cast<size_t>(id);
    if (index >= parts_->token_texts.size()) {
      parts_->token_texts.resize(index + 1);
      parts_->is_special.resize(index + 1);
    }
    parts_->token_texts[index] = std::move(text);
  }

  void read_model() {
    const JsonObject model = file_.object("model");
    const std::string type = model.has("type") ? model.type() : "BPE";
    if (type == "BPE") {
      read_bpe(model);
    } else if (type == "Unigram") {
      read_unigram(model);
    } else {
      throw FileError(fmt::format(
          "{}: the model \"{}\" is not implemented; known are: BPE, Unigram", model.where(), type));
    }
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      put_text(id, vocabulary_.text(id));
      if (!vocabulary_.text(id).empty()) {
        fingerprint_.add(id);
        fingerprint_.add(vocabulary_.text(id));
      }
    }
  }

  std::vector<int32_t> byte_fallback(const JsonObject& model) const {
    return model.flag("byte_fallback", false) ? byte_token_ids(vocabulary_)
                                              : std::vector<int32_t>();
  }

  void read_bpe(const JsonObject& model) {
    check<FileError>(!model.has("dropout") || model.value("dropout") == 0.0,
                     "{}: \"dropout\" is {}: ids drawn at random are not implemented",
                     model.where(), model.raw().value("dropout", json()).dump());
    refuse_if_set(model, "continuing_subword_prefix");
    refuse_if_set(model, "end_of_word_suffix");
    vocabulary_ = Vocabulary(read_bpe_vocabulary(model));
    BpeOptions options;
    options.ignores_merges = model.flag("ignore_merges", false);
    options.byte_fallback = byte_fallback(model);
    options.fuses_unknown = model.flag("fuse_unk", false);
    if (const auto unknown = model.optional_text("unk_token")) {
      options.unknown = vocabulary_.find(*unknown);
      check<FileError>(*options.unknown != kNone,
                       "{}: \"unk_token\" is \"{}\", which is not in the vocabulary", model.where(),
                       *unknown);
    }
    fingerprint_.add(fmt::format("BPE {} {} {} {}", options.ignores_merges,
                                 !options.byte_fallback.empty(), options.fuses_unknown,
                                 options.unknown.value_or(kNone)));
    read_pre_tokenizer_for(/*may_keep_bytes=*/options.byte_fallback.empty());
    options.uses_bytes = keeps_bytes_;
    const std::vector<BpeMerge> merges = read_merges(model, vocabulary_, fingerprint_);
    parts_->model_vocabulary = Vocabulary(keeps_bytes_ ? tokens_as_bytes() : tokens_as_they_are());
    parts_->model = std::make_unique<Bpe>(parts_->model_vocabulary, merges, std::move(options));
  }

  void read_unigram(const JsonObject& model) {
    Tokens tokens;
    std::vector<double> scores;
    for (const json& entry : model.array("vocab")) {
      const std::string where = fmt::format("{}: vocab[{}]", model.where(), scores.size());
      check<FileError>(entry.is_array() && entry.size() == 2 && entry[1].is_number(),
                       "{} is not a token with its score", where);
      tokens.emplace_back(text_of(entry[0], where, "token"), static_cast<int32_t>(scores.size()));
      check<FileError>(!tokens.back().first.empty(), "{} is empty", where);
      scores.push_back(entry[1].get<double>());
      fingerprint_.add(entry.dump());
    }
    check<FileError>(!tokens.empty(), "{}: \"vocab\" is empty", model.where());
    vocabulary_ = Vocabulary(std::move(tokens));
    std::optional<int32_t> unknown;
    if (model.has("unk_id")) {
      const int64_t id = model.integer("unk_id");
      check<FileError>(id >= 0 && id < vocabulary_.size(),
                       "{}: \"unk_id\" is {}, outside the vocabulary of {}", model.where(), id,
                       vocabulary_.size());
      unknown = static_cast<int32_t>(id);
    }
    std::vector<int32_t> fallback = byte_fallback(model);
    fingerprint_.add(fmt::format("Unigram {} {}", !fallback.empty(), unknown.value_or(kNone)));
    read_pre_tokenizer_for(/*may_keep_bytes=*/false);
    parts_->model_vocabulary = Vocabulary(tokens_as_they_are());
    UnigramOptions options;
    options.unknown = unknown;
    options.unknown_score = *std::min_element(scores.begin(), scores.end()) - kUnknownPenalty;
    options.byte_fallback = std::move(fallback);
    options.scores = std::move(scores);
    parts_->model = std::make_unique<Unigram>(parts_->model_vocabulary, std::move(options));
  }

  void read_pre_tokenizer_for(bool may_keep_bytes) {
    if (file_.has("pre_tokenizer")) {
      auto read = read_pre_tokenizer(file_.object("pre_tokenizer"), may_keep_bytes);
      parts_->pre_tokenizer = std::move(read.pre_tokenizer);
      keeps_bytes_ = read.keeps_bytes;
    }
  }

  Tokens tokens_as_they_are() const {
    Tokens tokens;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      if (!vocabulary_.text(id).empty()) {
        tokens.emplace_back(vocabulary_.text(id), id);
      }
    }
    return tokens;
  }

  // A token that is not in the byte alphabet cannot come out of the pre-tokenizer.
  Tokens tokens_as_bytes() const {
    Tokens tokens;
    for (auto& [text, id] : tokens_as_they_are()) {
      if (auto bytes = from_byte_alphabet(text)) {
        tokens.emplace_back(std::move(*bytes), id);
      }
    }
    return tokens;
  }

  void read_added_tokens() {
    if (!file_.has("added_tokens")) {
      return;
    }
    // The package numbers tokens that the model lacks from here on, whatever the file says.
    int32_t next_id = vocabulary_.num_tokens();
    for (const JsonObject& entry : file_.objects("added_tokens")) {
      AddedToken token;
      token.content = entry.text("content");
      if (token.content.empty()) {
        continue;
      }
      token.is_special = entry.flag("special");
      token.is_normalized = entry.flag("normalized");
      token.single_word = entry.flag("single_word");
      token.strips_left = entry.flag("lstrip");
      token.strips_right = entry.flag("rstrip");
      const int32_t known = find(token.content);
      token.id = known != kNone ? known : next_id++;
      const int32_t given = checked_id(entry.value("id"), token.content, entry);
      check<FileError>(given == token.id,
                       "{}: \"{}\" has the id {}, but the tokenizers package would give it {}: ids "
                       "of added tokens follow each other without a gap",
                       entry.where(), token.content, given, token.id);
      add_token(std::move(token));
    }
  }

  void add_token(AddedToken token) {
    NormalizedText normalized{token.content};
    if (token.is_normalized && parts_->normalizer != nullptr) {
      parts_->normalizer->apply(normalized);
    }
    if (!normalized.text.empty()) {
      (token.is_normalized ? parts_->normalized_added_tokens : parts_->added_tokens)
          .add(token, normalized.text);
    }
    put_text(token.id, normalized.text);
    fingerprint_.add(fmt::format("{} {} {} {} {} {}", token.id, token.is_special,
                                 token.is_normalized, token.single_word, token.strips_left,
                                 token.strips_right));
    fingerprint_.add(token.content);
    added_.push_back(std::move(token));
  }

  void read_decoding() {
    // As in the package, by the text that decoding starts from, whatever the id.
    std::unordered_set<std::string_view> special;
    for (const AddedToken& token : added_) {
      if (token.is_special) {
        special.insert(token.content);
      }
    }
    for (size_t id = 0; id < parts_->token_texts.size(); ++id) {
      parts_->is_special[id] = special.contains(parts_->token_texts[id]);
    }
    if (!file_.has("decoder")) {
      parts_->decoder.push_back([] { return std::make_unique<SpaceBetweenStep>(); });
      return;
    }
    const JsonObject decoder = file_.object("decoder");
    if (decoder.type() != "ByteLevel") {
      parts_->decoder = read_decoder(decoder);
      return;
    }
    for (std::string& text : parts_->token_texts) {
      if (auto bytes = from_byte_alphabet(text)) {
        text = std::move(*bytes);
      }
    }
    parts_->decoder.push_back([] { return std::make_unique<BytesStep>(); });
  }

  void check_surrounding(const std::vector<int32_t>& ids) const {
    for (const int32_t id : ids) {
      check<FileError>(id < std::ssize(parts_->token_texts),
                       "{}: post_processor: the id {} is outside the vocabulary of {}", path_, id,
                       parts_->token_texts.size());
    }
  }

  void finish_fingerprint() {
    for (const char* key : {"normalizer", "pre_tokenizer"}) {
      fingerprint_.add(file_.has(key) ? file_.value(key).dump() : "null");
    }
    fingerprint_.add(parts_->end_of_document);
    parts_->fingerprint = fingerprint_.value();
  }

  const std::string& path_;
  const json json_;
  const JsonObject file_;
  std::unique_ptr<TokenizerParts> parts_ = std::make_unique<TokenizerParts>();
  Vocabulary vocabulary_;  // as in the file
  std::vector<AddedToken> added_;
  bool keeps_bytes_ = false;
  Fingerprint fingerprint_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path, const std::string& name) {
  return Reader(path, name).read();
}

}  // namespace switchyard
