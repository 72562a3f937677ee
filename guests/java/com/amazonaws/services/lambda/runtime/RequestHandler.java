// SPDX-License-Identifier: Apache-2.0
package com.amazonaws.services.lambda.runtime;

/** A handler of events: what handlers written for Lambda implement. */
public interface RequestHandler<I, O> {
    O handleRequest(I input, Context context);
}
