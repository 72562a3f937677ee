// SPDX-License-Identifier: Apache-2.0
package com.amazonaws.services.lambda.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;

/** A handler of bytes: what it writes is the answer. */
public interface RequestStreamHandler {
    void handleRequest(InputStream input, OutputStream output, Context context) throws IOException;
}
