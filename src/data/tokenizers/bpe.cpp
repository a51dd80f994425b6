#include "data/tokenizers/bpe.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
constexpr auto kNone = Vocabulary::kNone;

// Up to here, looking at all pairs for each merge is faster than a heap.
constexpr size_t kFewSymbols = 96;

char32_t last_character(std::string_view text) {
  size_t position = text.size() - 1;
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xc0U) == 0x80) {
    --position;
  }
  return next_character(text, position);
}

}  // namespace

// What encoding one piece needs, kept by each thread.
struct Bpe::Workspace {
  std::vector<int32_t> symbols;
  std::vector<uint32_t> ranks;
  std::vector<int32_t> results;
  std::vector<int32_t> previous;
  std::vector<int32_t> next;
};

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges, BpeOptions options)
    : vocabulary_(vocabulary), options_(std::move(options)), pairs_(merges.size()) {
  for (const BpeMerge& merge : merges) {
    pairs_.put(merge.left, merge.right, {merge.rank, merge.result});
  }
  if (options_.uses_bytes) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      byte_ids_[byte] = vocabulary_.find({&text, 1});
    }
  } else {
    read_characters();
    find_cuts(merges);
  }
}

void Bpe::read_characters() {
  const auto put = [&](char32_t character, int32_t id) {
    if (character >= character_ids_.size()) {
      character_ids_.resize(character + 1, kNone);
    }
    character_ids_[character] = id;
  };
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string& text = vocabulary_.text(id);
    if (!text.empty() && text.size() == character_length(text[0])) {
      size_t position = 0;
      put(next_character(text, position), id);
    }
  }
}

void Bpe::find_cuts(const std::vector<BpeMerge>& merges) {
  cuts_at_spaces_ = vocabulary_.find(kSpaceMark) != kNone;
  for (const BpeMerge& merge : merges) {
    if (vocabulary_.text(merge.right).starts_with(kSpaceMark) &&
        !vocabulary_.text(merge.left).ends_with(kSpaceMark)) {
      joined_to_space_.insert(last_character(vocabulary_.text(merge.left)));
    }
  }
}

// The first place behind `from` where no merge can reach across, or the end.
size_t Bpe::next_cut(std::string_view piece, size_t from) const {
  size_t cut = from;
  while (true) {
    cut = piece.find(kSpaceMark, cut + 1);
    if (cut == std::string_view::npos) {
      return piece.size();
    }
    const std::string_view before = piece.substr(0, cut);
    if (!before.ends_with(kSpaceMark) &&
        (joined_to_space_.empty() || !joined_to_space_.contains(last_character(before)))) {
      return cut;
    }
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  thread_local Workspace work;
  if (!cuts_at_spaces_) {
    encode_part(piece, options_.ignores_merges, work, ids);
    return;
  }
  if (options_.ignores_merges) {
    const int32_t id = vocabulary_.find(piece);
    if (id != kNone) {
      ids.push_back(id);
      return;
    }
  }
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = next_cut(piece, begin);
    encode_part(piece.substr(begin, end - begin), /*may_be_token=*/false, work, ids);
    begin = end;
  }
}

void Bpe::encode_part(std::string_view part, bool may_be_token, Workspace& work,
                      std::vector<int32_t>& ids) const {
  const bool is_short = part.size() <= PieceCache::kMaxTextSize;
  PieceCache& cache = PieceCache::of_this_thread(cache_owner_);
  const uint64_t hash = is_short ? hash_piece(part) : 0;
  if (is_short && cache.append(part, hash, ids)) {
    return;
  }
  std::vector<int32_t>& symbols = work.symbols;
  symbols.clear();
  const int32_t whole = may_be_token ? vocabulary_.find(part) : kNone;
  if (whole != kNone) {
    symbols.push_back(whole);
  } else {
    put_symbols(part, symbols);
    if (symbols.size() <= kFewSymbols) {
      merge_few(symbols, work);
    } else {
      merge_many(symbols, work);
    }
  }
  if (is_short) {
    cache.put(part, hash, symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void Bpe::put_symbols(std::string_view part, std::vector<int32_t>& symbols) const {
  bool has_unknown = false;
  for (size_t position = 0; position < part.size();) {
    const size_t begin = position;
    int32_t id = kNone;
    if (options_.uses_bytes) {
      id = byte_ids_[static_cast<unsigned char>(part[position++])];
    } else {
      const char32_t character = next_character(part, position);
      id = character < character_ids_.size() ? character_ids_[character] : kNone;
    }
    put_unit(part.substr(begin, position - begin), id, has_unknown, symbols);
  }
  if (has_unknown) {
    symbols.push_back(*options_.unknown);
  }
}

// An unknown unit is held back until the next unit that is a token, as in the package.
void Bpe::put_unit(std::string_view unit, int32_t id, bool& has_unknown,
                   std::vector<int32_t>& symbols) const {
  if (id != kNone) {
    if (has_unknown) {
      symbols.push_back(*options_.unknown);
      has_unknown = false;
    }
    symbols.push_back(id);
    return;
  }
  const auto byte_id = [&](char byte) {
    return options_.byte_fallback[static_cast<unsigned char>(byte)];
  };
  if (!options_.byte_fallback.empty() &&
      std::all_of(unit.begin(), unit.end(), [&](char byte) { return byte_id(byte) != kNone; })) {
    for (const char byte : unit) {
      symbols.push_back(byte_id(byte));
    }
    return;
  }
  if (!options_.unknown) {
    return;
  }
  if (has_unknown && !options_.fuses_unknown) {
    symbols.push_back(*options_.unknown);
  }
  has_unknown = true;
}

void Bpe::merge_few(std::vector<int32_t>& symbols, Workspace& work) const {
  size_t size = symbols.size();
  if (size < 2) {
    return;
  }
  work.ranks.resize(std::max(work.ranks.size(), kFewSymbols));
  work.results.resize(std::max(work.results.size(), kFewSymbols));
  int32_t* symbol = symbols.data();
  uint32_t* rank = work.ranks.data();  // of the pair that begins at a symbol
  int32_t* result = work.results.data();
  const auto look_up = [&](size_t i) {
    const PairTable::Merge merge = pairs_.find(symbol[i], symbol[i + 1]);
    rank[i] = merge.rank;
    result[i] = merge.result;
  };
  for (size_t i = 0; i + 1 < size; ++i) {
    look_up(i);
  }
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      best = rank[i] < rank[best] ? i : best;
    }
    if (rank[best] == PairTable::kNoRank) {
      break;
    }
    symbol[best] = result[best];
    std::copy(symbol + best + 2, symbol + size, symbol + best + 1);
    std::copy(rank + best + 2, rank + size, rank + best + 1);
    std::copy(result + best + 2, result + size, result + best + 1);
    --size;
    if (best > 0) {
      look_up(best - 1);
    }
    if (best + 1 < size) {
      look_up(best);
    }
  }
  symbols.resize(size);
}

void Bpe::merge_many(std::vector<int32_t>& symbols, Workspace& work) const {
  const size_t size = symbols.size();
  work.ranks.assign(size, PairTable::kNoRank);  // of the pair that begins at a symbol, at present
  work.results.resize(size);
  work.previous.resize(size);
  work.next.resize(size);
  // Lowest rank first, then leftmost. An entry whose rank is no longer that of its place is stale.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue;
  const auto look_up = [&](size_t i) {
    const auto right = static_cast<size_t>(work.next[i]);
    PairTable::Merge merge;
    if (right < size) {
      merge = pairs_.find(symbols[i], symbols[right]);
    }
    work.ranks[i] = merge.rank;
    work.results[i] = merge.result;
    if (merge.rank != PairTable::kNoRank) {
      queue.push(uint64_t{merge.rank} << 32 | i);
    }
  };
  for (size_t i = 0; i < size; ++i) {
    work.previous[i] = static_cast<int32_t>(i) - 1;
    work.next[i] = static_cast<int32_t>(i) + 1;
    look_up(i);
  }
  while (!queue.empty()) {
    const auto rank = static_cast<uint32_t>(queue.top() >> 32);
    const auto place = static_cast<size_t>(queue.top() & UINT32_MAX);
    queue.pop();
    if (work.ranks[place] != rank) {
      continue;
    }
    const auto right = static_cast<size_t>(work.next[place]);
    symbols[place] = work.results[place];
    symbols[right] = kNone;
    work.ranks[right] = PairTable::kNoRank;
    work.next[place] = work.next[right];
    if (static_cast<size_t>(work.next[place]) < size) {
      work.previous[static_cast<size_t>(work.next[place])] = static_cast<int32_t>(place);
    }
    if (work.previous[place] >= 0) {
      look_up(static_cast<size_t>(work.previous[place]));
    }
    look_up(place);
  }
  std::erase(symbols, kNone);
}

}  // namespace switchyard
