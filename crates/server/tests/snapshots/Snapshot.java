import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnels;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** Answers for keys from a snapshot, with Guava and nothing else. Usage: Snapshot URL KEYS_FILE */
public final class Snapshot {
    public static void main(String[] args) throws Exception {
        BloomFilter<CharSequence> filter = download(URI.create(args[0]));
        StringBuilder answers = new StringBuilder();
        for (String key : Files.readAllLines(Path.of(args[1]), StandardCharsets.UTF_8)) {
            answers.append(filter.mightContain(key) ? '1' : '0');
        }
        System.out.println(answers);
    }

    private static BloomFilter<CharSequence> download(URI snapshot) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(snapshot).build();
        HttpResponse<InputStream> response =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofInputStream());
        try (InputStream body = response.body()) {
            if (response.statusCode() != 200) {
                throw new IOException(response.statusCode() + " " + new String(body.readAllBytes(), StandardCharsets.UTF_8));
            }
            return BloomFilter.readFrom(body, Funnels.stringFunnel(StandardCharsets.UTF_8));
        }
    }
}
