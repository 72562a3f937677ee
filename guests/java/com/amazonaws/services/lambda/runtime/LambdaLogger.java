// SPDX-License-Identifier: Apache-2.0
package com.amazonaws.services.lambda.runtime;

/** Writes to the function's log. */
public interface LambdaLogger {
    void log(String message);

    default void log(byte[] message) {
        log(new String(message, java.nio.charset.StandardCharsets.UTF_8));
    }
}
