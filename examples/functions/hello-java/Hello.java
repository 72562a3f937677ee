// SPDX-License-Identifier: Apache-2.0

package hello;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import java.util.Map;

/** A function: what it returns is the answer. */
public class Hello implements RequestHandler<Map<String, Object>, Map<String, Object>> {
    private static final String GREETING = System.getenv().getOrDefault("GREETING", "Hello");

    @Override
    public Map<String, Object> handleRequest(Map<String, Object> event, Context context) {
        Object name = event.getOrDefault("name", "world");
        System.out.println("greeting " + name + " for request " + context.getAwsRequestId());
        return Map.of("message", GREETING + ", " + name + "!");
    }
}
