// SPDX-License-Identifier: Apache-2.0
package sinew;

import com.amazonaws.services.lambda.runtime.ClientContext;
import com.amazonaws.services.lambda.runtime.CognitoIdentity;
import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.LambdaLogger;

/** What a handler may know about its call. */
final class CallContext implements Context {
    private final Request request;
    private final int memoryMb;

    CallContext(Request request, int memoryMb) {
        this.request = request;
        this.memoryMb = memoryMb;
    }

    @Override
    public String getAwsRequestId() {
        return request.header("x-request-id", "");
    }

    @Override
    public String getLogGroupName() {
        return getFunctionName();
    }

    @Override
    public String getLogStreamName() {
        return getAwsRequestId();
    }

    @Override
    public String getFunctionName() {
        return request.header("sinew-function", "");
    }

    @Override
    public String getFunctionVersion() {
        return request.header("sinew-version", "0");
    }

    @Override
    public String getInvokedFunctionArn() {
        return getFunctionName() + ":" + getFunctionVersion();
    }

    @Override
    public CognitoIdentity getIdentity() {
        return null;
    }

    @Override
    public ClientContext getClientContext() {
        return null;
    }

    @Override
    public int getRemainingTimeInMillis() {
        long deadline = Long.parseLong(request.header("sinew-deadline-ms", "0"));
        return (int) Math.max(0, Math.min(Integer.MAX_VALUE, deadline - System.currentTimeMillis()));
    }

    @Override
    public int getMemoryLimitInMB() {
        return memoryMb;
    }

    @Override
    public LambdaLogger getLogger() {
        return System.out::println;
    }
}
