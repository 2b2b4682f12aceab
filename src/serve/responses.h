// Responses that every endpoint gives: JSON, and what a client is told of a fault.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "base/json_fwd.h"
#include "serve/http_server.h"

namespace sluice::serve {

Response json_response(int status, const base::Json& json);

// The request is wrong. `code` is OpenAI's, or "".
Response invalid_request(int status, const std::string& message, const std::string& code = "");

// Status 503: the same may succeed after so many seconds.
Response retry_later(const std::string& message, const char* seconds, const char* type = "server_error");

// As many texts wait as may.
Response overloaded();

// The response that tells a client of a fault; `failed` hears of those that are the server's own.
Response fault_response(const std::exception_ptr& fault,
                        const std::function<void(const std::string& fault)>& failed);

}  // namespace sluice::serve
