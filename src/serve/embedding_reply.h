// Response to an embeddings request. Used by the writer thread of a ModelService.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "inference/engine.h"
#include "serve/reply.h"

namespace some {

class EmbeddingReply {
 public:
  EmbeddingReply(EmbeddingRequest request, std::vector<std::vector<TokenId>> inputs, std::string model, Answer answer)
      : request_(std::move(request)),
        inputs_(std::move(inputs)),
        model_(std::move(model)),
        answer_(std::move(answer)),
        found_(inputs_.size()),
        left_(inputs_.size()) {}
  const std::vector<std::vector<TokenId>>& inputs() const { return inputs_; }
  const EmbeddingRequest& request() const { return request_; }
  bool is_open() const { return answer_.is_open(); }
  bool is_over() const { return over_; }
  int status() const { return status_; }

  // Called when an input is done; answers after the last one.
  void finished(std::size_t index, const FinishedSequence& sequence);
  void fail(const Error& error);

 private:
  EmbeddingRequest request_;
  std::vector<std::vector<TokenId>> inputs_;
  std::string model_;
  Answer answer_;
  std::vector<std::vector<float>> found_;
  std::size_t left_;
  bool over_ = false;
  int status_ = 200;
};

}  // namespace some
